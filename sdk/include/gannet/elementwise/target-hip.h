// The HIP target: the rules are device functions. The SDK has no loop for HIP; a plugin's kernel
// calls the rules. One translation unit may include several files of rules.
#pragma once
#include <gannet/elementwise/scalar.h>

#define GANNET_RULE_TARGET hip
#define GANNET_RULE_TARGET_BEGIN
#define GANNET_RULE_TARGET_END
#define GANNET_RULE_DEVICE "rocm"
#define GANNET_RULE_IS_LAST 0
#define GANNET_RULE_KERNEL(Family_, Name_)

namespace gannet::rules::hip {
#include <gannet/elementwise/scalar-inl.h>
}
