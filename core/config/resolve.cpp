#include "config/resolve.h"

#include <gannet/error.h>

#include "base/check.h"
#include "base/format.h"
#include "config/cross_checks.h"
#include "config/effective.h"
#include "config/keys.h"
#include "config/mistakes.h"
#include "config/status.h"

namespace gannet::config {
namespace {

void fill_batch(Settings& settings, const Document& document, EffectiveValues& values, int64_t world_size, bool rank_is_set) {
  const GivenBatch given = given_batch(document);
  const Batch batch = complete_batch(given, world_size,
                                     where(document, given.train   ? kTrain
                                                     : given.micro ? kMicro
                                                                   : ""),
                                     rank_is_set);
  settings.train_batch_size = batch.train;
  settings.micro_batch_size = batch.micro;
  settings.accumulation_steps = batch.accumulation;
  const std::string world = formatted("world size {}", world_size);
  const bool nothing_to_share = !given.accumulation && !(given.train && given.micro);
  values.computed(
      kAccumulation, batch.accumulation,
      nothing_to_share ? "default" : formatted("computed from train_batch_size, train_micro_batch_size_per_gpu and {}", world));
  values.computed(kMicro, batch.micro, formatted("computed from train_batch_size, gradient_accumulation_steps and {}", world));
  values.computed(kTrain, batch.train,
                  formatted("computed from train_micro_batch_size_per_gpu, gradient_accumulation_steps and {}", world));
}

// Adds the values of aio to the params of an offload target that is in use at this stage, and
// clears one that is not.
void settle(OffloadTarget& to, bool is_used, const Dict& aio) {
  if (!is_used || !to) {
    to.device.clear();
    to.params = {};
    return;
  }
  for (const auto& [name, value] : aio.entries()) to.params[name] = value;
}

ResolvedConfig resolve_into(const Document& document, int64_t world_size, bool rank_is_set, std::vector<Error>* mistakes) {
  GANNET_CHECK(world_size >= 1);
  EffectiveValues values(document);
  attempt(mistakes, [&] { values.require_no_auto(); });
  ResolvedConfig result{settings_of(document), {}, {}};
  Settings& settings = result.settings;

  attempt(mistakes, [&] { check_zero(settings, document); });
  settle(settings.zero.offload_optimizer, settings.zero.stage > 0, settings.aio);
  settle(settings.zero.offload_param, settings.zero.stage == 3, settings.aio);
  result.notices = document.notices();
  for (std::string& notice : check_status(document, mistakes)) result.notices.push_back(std::move(notice));

  attempt(mistakes, [&] { check_has_type(settings.optimizer, "optimizer", document, values); });
  attempt(mistakes, [&] { check_has_type(settings.scheduler, "scheduler", document, values); });
  attempt(mistakes, [&] { check_param_groups(settings, document, values); });
  attempt(mistakes, [&] { check_precision(settings, document); });
  if (!mistakes || !values.lacks_batch())
    attempt(mistakes, [&] { fill_batch(settings, document, values, world_size, rank_is_set); });
  if (const std::string taken = values.defaults_for_auto(); !taken.empty())
    result.notices.push_back(formatted("\"auto\" taken as its default: {}", taken));
  settings.wall_clock_breakdown |= settings.flops_profiler.enabled;  // as in DeepSpeed
  attempt(mistakes, [&] { check_ema(settings, document); });
  attempt(mistakes, [&] { check_trace(settings, document); });
  attempt(mistakes, [&] { check_activations(settings.activation_checkpointing, document); });
  for (size_t n = 0; n < settings.activation_checkpointing.recompute.size(); ++n)
    attempt(mistakes, [&] { check_recompute(settings.activation_checkpointing, n, document); });

  result.effective = values.take();
  return result;
}

}  // namespace

GivenBatch given_batch(const Document& document) {
  const auto given = [&](const char* path) -> std::optional<int64_t> {
    const Value* value = document.find(path);
    return value && value->is_int() ? std::optional(value->as_int()) : std::nullopt;
  };
  return {given(kTrain), given(kMicro), given(kAccumulation)};
}

Settings settings_of(const Document& document) {
  Settings settings;
  for (const Key* key : all_keys())
    if (key->member.kind != Member::Kind::kNone) store(*key, value_of(document, *key), settings);
  return settings;
}

ResolvedConfig resolve(const Document& document, int64_t world_size, bool rank_is_set) {
  return resolve_into(document, world_size, rank_is_set, nullptr);
}

ResolvedConfig resolve(const Document& document, int64_t ranks, std::vector<Error>& mistakes) {
  int64_t world_size = implied_world_size(given_batch(document));  // no mistake of the batch sizes on top of one of the mesh
  attempt(&mistakes, [&] { world_size = data_ranks(document, ranks); });
  return resolve_into(document, world_size, /*rank_is_set=*/true, &mistakes);
}

}  // namespace gannet::config
