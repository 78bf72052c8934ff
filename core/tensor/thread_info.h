// The slots of LibTorch's thread-local debug information that Gannet uses. LibTorch propagates them
// from the thread that calls backward to autograd's threads.
//
// The code that depends on the version of LibTorch is in this header.
//
// Up to 2.12, the kind of a slot is a value of an enum that cannot be extended, so Gannet uses the
// two values that LibTorch reserves for tests; no profiler uses them. Later versions identify a
// kind by the address of its name, so each slot gets a kind of its own.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <cstdint>
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

/// The data that a backward carries to autograd's threads, where the caller's thread-local
/// variables are not visible.
struct BackwardInfo : c10::DebugInfoBase, std::enable_shared_from_this<BackwardInfo> {
  std::atomic<void*> call{nullptr};  // the watch's call for this backward (control/watch.h); null: no other rank is involved
  // In either pass of a two-pass backward (grads/split_backward.h), the number of that backward; 0:
  // an ordinary backward.
  std::atomic<int64_t> split{0};
  std::atomic<bool> is_input_pass{false};
};

/// The slot of the BackwardInfo that identifies the backward on this thread (Reducer::mark()).
inline constexpr c10::DebugInfoKind kBackwardKind = backward_kind<c10::DebugInfoKind>();
/// The slot of the Observer of this thread's operators (params/interception.h).
inline constexpr c10::DebugInfoKind kObserverKind = observer_kind<c10::DebugInfoKind>();

}  // namespace gannet
