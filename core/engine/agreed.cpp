// What all ranks must agree on: at construction the config, the model and the plugins; in every step what the watch compares
// beside the call itself (control/facts.h).
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "base/format.h"
#include "base/text.h"
#include "control/world.h"
#include "engine/impl.h"

namespace gannet {

// The engines of a group count together: a rank may have others beside them.
uint32_t next_number_in(const std::string& group) {
  static std::mutex mutex;
  static std::map<std::string, uint32_t> counts;
  const std::lock_guard lock(mutex);
  return counts[group]++;
}

void EngineBase::Impl::start_agreeing() {
  facts = std::make_unique<control::Facts>(number_in_group);
  using Kind = control::Facts::Kind;
  fact_rows.micro_batch = facts->add("the micro-batch of the step");
  fact_rows.accumulation = facts->add("gradient_accumulation_steps");
  fact_rows.boundary = facts->add("is_gradient_accumulation_boundary");
  fact_rows.loss_scale = facts->add("the loss scale");
  fact_rows.clipping = facts->add("gradient_clipping");
  fact_rows.errors = facts->add("the number of errors that were caught");
  fact_rows.frozen = facts->add("the hash of which parameters require a gradient", Kind::kHash);
  fact_rows.written = facts->add("the hash of what the program wrote into parameters since the last step", Kind::kHash);
  fact_rows.late = facts->add("the hash of which gradients came behind their bucket", Kind::kHash);
  for (const Group& group : groups) {
    auto& rows = fact_rows.hyper.emplace_back();
    for (const auto& name : group.hyper_names) rows.push_back(facts->add(formatted("{} of {}", name, group.name)));
  }
}

control::Facts& EngineBase::Impl::agreed(bool is_boundary) {
  facts->set(fact_rows.micro_batch, static_cast<double>(progress.micro_in_step + 1));
  facts->set(fact_rows.accumulation, static_cast<double>(settings().accumulation_steps));
  facts->set(fact_rows.boundary, is_boundary ? 1.0 : 0.0);
  facts->set(fact_rows.loss_scale, scaler.scale());
  facts->set(fact_rows.clipping, settings().gradient_clipping);
  facts->set(fact_rows.errors, static_cast<double>(progress.caught_errors));
  uint64_t frozen_hash = 0, place = 0;
  for (const auto& range : ranges)
    for (size_t p = 0; p < range.parameters.size(); ++p) {
      ++place;
      if (range.parameters[p].tensor.requires_grad()) continue;
      frozen_hash = (frozen_hash + place) * 0x9E3779B97F4A7C15u + (is_skipped(range, p) ? 1 : 2);
    }
  facts->set_hash(fact_rows.frozen, frozen_hash);
  facts->set_hash(fact_rows.written, written_hash);
  facts->set_hash(fact_rows.late, reducer->late_buckets());
  for (size_t g = 0; g < groups.size(); ++g)
    for (size_t h = 0; h < std::min(groups[g].hyper.size(), fact_rows.hyper[g].size()); ++h)
      facts->set(fact_rows.hyper[g][h], groups[g].hyper[h]);
  return *facts;
}

bool EngineBase::Impl::is_whole_world() const {
  return world_group->size() > 1 && world_group->size() == process_group->world()->size();
}

namespace {

// Paths, ports, devices and what a rank prints.
bool may_differ(const std::string& path) {
  static const char* const kLast[] = {"path", "nvme_path", "output_path", "job_name", "output_file",
                                      "port", "interface", "log_level",   "level"};
  const std::string last = path.substr(path.rfind('/') + 1);
  return path.starts_with("/accelerator") || path.starts_with("/comm/") || path.starts_with("/plugins") ||
         path.starts_with("/dump_state") ||
         std::any_of(std::begin(kLast), std::end(kLast), [&](const char* name) { return last == name; });
}

}  // namespace

// Over the store where all ranks meet: it names those that never come. An engine on some of them has their group.
void EngineBase::Impl::agree(const std::string& what, const std::string& text) {
  if (is_whole_world())
    process_group->world()->agree(what, text);
  else
    control::agree(*world_group, what, text);
}

// What must be the same on every rank for their sums to mean anything.
void EngineBase::Impl::agree_on_model() {
  if (world_group->size() == 1) return;
  std::string same = formatted("ZeRO stage {}, reduce_bucket_size {}, micro-batch {}, accumulation {}{}\n", settings().zero.stage,
                               settings().zero.reduce_bucket_size, settings().micro_batch_size, settings().accumulation_steps,
                               observe::is_wanted(settings()) ? ", with a monitor" : "");
  // The effective config, but for what belongs to one machine or process: a stale copy of the file is found here.
  for (const auto& entry : resolved.effective)
    if (!may_differ(entry.path)) same += formatted("{} = {}\n", entry.path, entry.value.to_json());
  std::string parameters;
  for (const auto& range : ranges)
    for (const auto& parameter : range.parameters) {
      parameters += formatted("{} {} (gradient {}, group {}) {}\n", parameter.name, c10::toString(range.dtype),
                              c10::toString(range.grad_dtype), range.group, shape_text(parameter.shape));
    }
  constexpr const char* kWhat = "the config, the model's parameters or the batch sizes";
  if (mesh->shape().size(kPipeAxis) == 1) return agree(kWhat, same + parameters);
  agree(kWhat, same);  // stages have parameters of their own; along the other axes they are the same
  if (host_group->size() > 1) control::agree(*host_group, kWhat, parameters);
  if (ProcessGroup* tensor = mesh->tensor()) control::agree(tensor->links().host, kWhat, parameters);
}

void EngineBase::Impl::agree_on_plugins() {
  if (world_group->size() > 1) agree("plugins (kind, name, version, hash)", control::list_of(registry->opened()));
}

}  // namespace gannet
