// The slots of LibTorch's thread-local debug information that Gannet uses. LibTorch carries them from the thread that calls
// backward into autograd's threads.
//
// Whatever differs between the versions of LibTorch that Gannet supports belongs in this header.
//
// Until 2.12 a kind is a value of an enumeration that cannot be extended, so Gannet uses the two that LibTorch reserves for
// tests: no profiler uses them. Later versions tell kinds apart by the address of their name: each gets its own.
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

/// What a backward carries into autograd's threads, where a thread-local of the caller's is another's.
struct BackwardInfo : c10::DebugInfoBase, std::enable_shared_from_this<BackwardInfo> {
  std::atomic<void*> call{nullptr};  // of the watch, that the backward is (control/watch.h); null: it meets no other rank
};

/// Whose backward runs on this thread: Reducer::mark(), a BackwardInfo.
inline constexpr c10::DebugInfoKind kBackwardKind = backward_kind<c10::DebugInfoKind>();
/// Who observes the operators of this thread: Observer (params/interception.h).
inline constexpr c10::DebugInfoKind kObserverKind = observer_kind<c10::DebugInfoKind>();

}  // namespace gannet
