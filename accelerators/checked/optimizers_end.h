// Included after the source of a CPU optimizer plugin (optimizers_begin.h). Defines the same
// optimizers for the checked device: their functions translate addresses, report the launch to the
// checker, and call the CPU function.
#include "accelerators/checked/optimizers.h"

namespace gannet::accelerators::checked {
namespace {

// Each optimizer needs its own functions, because among their arguments only the object
// identifies the optimizer.
template <size_t kIndex>
struct TranslatedOptimizer {
  static const gannet_optimizer_api& cpu() { return *static_cast<const gannet_optimizer_api*>(kOfCpu[kIndex].api); }

  static int32_t describe(void* self, const gannet_optimizer_context* context, gannet_optimizer_description* description,
                          gannet_error* error) {
    const int32_t status = cpu().describe(self, context, description, error);
    if (status == GANNET_OK) remember_states(self, *description);
    return status;
  }
  static void destroy(void* self) {
    forget_states(self);
    cpu().destroy(self);
  }
  static int32_t update(void* self, const gannet_update_args* args, gannet_error* error) {
    return launch_update(self, *args, kOfCpu[kIndex].name, UpdatePass::kUpdate, error,
                         [&](const gannet_update_args& there) { return cpu().update(self, &there, error); });
  }
  static int32_t sums(void* self, const gannet_update_args* args, uint32_t round, double* sums, gannet_error* error) {
    return launch_update(self, *args, kOfCpu[kIndex].name, UpdatePass::kSums, error,
                         [&](const gannet_update_args& there) { return cpu().sums(self, &there, round, sums, error); });
  }
  static int32_t evaluate(void* self, const gannet_update_args* args, gannet_error* error) {
    return launch_update(self, *args, kOfCpu[kIndex].name, UpdatePass::kOut, error,
                         [&](const gannet_update_args& there) { return cpu().evaluate(self, &there, error); });
  }
  static int32_t perturb(void* self, const gannet_update_args* args, gannet_error* error) {
    return launch_update(self, *args, kOfCpu[kIndex].name, UpdatePass::kOut, error,
                         [&](const gannet_update_args& there) { return cpu().perturb(self, &there, error); });
  }

  static gannet_optimizer_api api() {
    gannet_optimizer_api api = cpu();
    api.describe = &describe;
    api.destroy = &destroy;
    api.update = &update;
    if (api.sums) api.sums = &sums;
    if (api.evaluate) api.evaluate = &evaluate;
    if (api.perturb) api.perturb = &perturb;
    api.update_many = nullptr;  // the CPU optimizers do not support lists
    api.sums_many = nullptr;
    return api;
  }
};

// Both of these are initialised when the plugin is loaded, before the host reads its exports.
template <size_t kIndex>
const gannet_optimizer_api kApi = TranslatedOptimizer<kIndex>::api();

template <size_t kIndex>
gannet_descriptor descriptor() {
  gannet_descriptor made = kOfCpu[kIndex];
  made.device = "checked";
  made.tier = GANNET_TIER_PINNED;
  made.fingerprint = GANNET_FINGERPRINT;
  made.api = &kApi<kIndex>;
  return made;
}

}  // namespace
}  // namespace gannet::accelerators::checked
