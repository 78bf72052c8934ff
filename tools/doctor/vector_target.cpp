#include "doctor/vector_target.h"

// Highway requires this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "doctor/vector_target.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace gannet::doctor::HWY_NAMESPACE {

const char* name_of_target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace gannet::doctor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gannet::doctor {

HWY_EXPORT(name_of_target);

const char* vector_target() { return HWY_DYNAMIC_DISPATCH(name_of_target)(); }

}  // namespace gannet::doctor
#endif
