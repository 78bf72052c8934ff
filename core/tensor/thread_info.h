// The slots of LibTorch's thread-local debug information that Gannet uses. LibTorch propagates them
// from the thread that calls backward to autograd's threads.
//
// Code that depends on the version of LibTorch belongs in this header.
//
// Up to 2.12 a kind is a value of an enum that cannot be extended, so Gannet uses the two that
// LibTorch reserves for tests; no profiler uses them. Later versions identify kinds by the address
// of their name, so each gets its own.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <memory>
#include <string_view>
#include <type_traits>

namespace gannet {

inline constexpr std::string_view kBackwardName = "gannet.backward", kObserverName = "gannet.observer";

template <class Kind>
constexpr Kind backward_kind() {
  if constexpr (std::is_enum_v<Kind>)
    return Kind::TEST_INFO;
  else
    return Kind(&kBackwardName);
}

template <class Kind>
constexpr Kind observer_kind() {
  if constexpr (std::is_enum_v<Kind>)
    return Kind::TEST_INFO_2;
  else
    return Kind(&kObserverName);
}

/// Data that a backward carries into autograd's threads, where the caller's thread-locals are not
/// visible.
struct BackwardInfo : c10::DebugInfoBase, std::enable_shared_from_this<BackwardInfo> {
  std::atomic<void*> call{nullptr};  // the watch's call for this backward (control/watch.h); null: it involves no other rank
};

/// Identifies the backward that runs on this thread: Reducer::mark(), a BackwardInfo.
inline constexpr c10::DebugInfoKind kBackwardKind = backward_kind<c10::DebugInfoKind>();
/// The observer of this thread's operators: Observer (params/interception.h).
inline constexpr c10::DebugInfoKind kObserverKind = observer_kind<c10::DebugInfoKind>();

}  // namespace gannet
