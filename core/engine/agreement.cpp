#include "engine/agreement.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <map>

#include "base/format.h"
#include "base/text.h"
#include "config/document.h"
#include "control/world.h"
#include "interfaces/scheduler.h"
#include "observe/monitor.h"
#include "update/updater.h"

namespace gannet {

Agreement::Agreement(uint32_t number_in_group, const std::vector<Group>& groups) : facts_(number_in_group) {
  using Kind = control::Facts::Kind;
  micro_batch_ = facts_.add("the micro-batch of the step");
  accumulation_ = facts_.add("gradient_accumulation_steps");
  boundary_ = facts_.add("is_gradient_accumulation_boundary");
  loss_scale_ = facts_.add("the loss scale");
  clipping_ = facts_.add("gradient_clipping");
  errors_ = facts_.add("the number of errors that were caught");
  position_ = facts_.add("the schedule's position");
  metric_ = facts_.add("the metric of the last scheduler->step()");
  frozen_ = facts_.add("which parameters require a gradient", Kind::kText);
  written_ = facts_.add("what the program wrote into parameters and its optimizer since the last step", Kind::kText);
  cleared_ = facts_.add("the hash of which gradients the program cleared (zero_grad() within a step)", Kind::kHash);
  late_ = facts_.add("the hash of which gradients came after their bucket", Kind::kHash);
  recomputes_ = facts_.add("whether gradient checkpointing is on");
  chooses_ = facts_.add("whether memory_limit has layers to choose from");
  for (const Group& group : groups) {
    auto& rows = hyper_.emplace_back();
    for (const auto& name : group.hyper_names) rows.push_back(facts_.add(formatted("{} of {}", name, group.name)));
  }
}

namespace {

// Returns "all", or "all but 'first.bias' (bits 0f3a...)".
std::string trained_text(const ParameterStore& store, uint64_t hash) {
  if (hash == 0) return "all";
  constexpr size_t kMost = 3;
  std::vector<std::string> first;
  size_t count = 0;
  for (const auto& range : store.ranges())
    for (const auto& parameter : range.parameters)
      if (!parameter.tensor.requires_grad() && count++ < kMost) first.push_back(formatted("'{}'", parameter.name));
  return formatted("all but {}{} ({})", join(first, ", "), count > kMost ? formatted(" and {} more", count - kMost) : "",
                   control::bits_text(hash));
}

}  // namespace

control::Facts& Agreement::facts(const StepFacts& step, const ParameterStore& store, const Reducer& reducer,
                                 const std::vector<Group>& groups) {
  facts_.set(micro_batch_, static_cast<double>(step.progress.micro_in_step + 1));
  facts_.set(accumulation_, static_cast<double>(step.settings.accumulation_steps));
  facts_.set(boundary_, step.is_boundary ? 1.0 : 0.0);
  facts_.set(loss_scale_, step.loss_scale);
  facts_.set(clipping_, step.settings.gradient_clipping);
  facts_.set(errors_, static_cast<double>(step.progress.caught_errors));
  facts_.set(position_, static_cast<double>(step.schedule.position));
  facts_.set(metric_, step.schedule.last_metric);
  uint64_t frozen_hash = 0, place = 0;
  for (const auto& range : store.ranges())
    for (size_t p = 0; p < range.parameters.size(); ++p) {
      ++place;
      if (range.parameters[p].tensor.requires_grad()) continue;
      frozen_hash = (frozen_hash + place) * 0x9E3779B97F4A7C15u + (is_skipped(range, p, reducer) ? 1 : 2);
    }
  facts_.set_text(frozen_, frozen_hash, [&] { return trained_text(store, frozen_hash); });
  facts_.set_text(written_, step.written_hash, step.written);
  facts_.set_hash(cleared_, reducer.cleared_gradients());
  facts_.set_hash(late_, reducer.late_buckets());
  facts_.set(recomputes_, step.recomputing.is_on() ? 1.0 : 0.0);
  facts_.set(chooses_, step.recomputing.unchosen().empty() ? 0.0 : 1.0);
  for (size_t g = 0; g < groups.size(); ++g)
    for (size_t h = 0; h < std::min(groups[g].hyper.size(), hyper_[g].size()); ++h) facts_.set(hyper_[g][h], groups[g].hyper[h]);
  return facts_;
}

namespace {

bool is_whole_world(const RankContext& context) {
  return context.world_group->size() > 1 && context.world_group->size() == context.process_group->world()->size();
}

// If the engine has all ranks of the world, they agree through the store where all ranks meet,
// which names ranks that never arrive. Otherwise they agree through their group.
void agree(const RankContext& context, const std::string& what, const std::string& text) {
  if (is_whole_world(context))
    context.process_group->world()->agree(what, text);
  else
    control::agree(*context.world_group, what, text);
}

// Returns whether a setting may differ between ranks: a path, a port, a device, the plugins section,
// or a setting for a rank's output.
bool may_differ(const std::string& path) {
  static const char* const kLast[] = {"path", "nvme_path", "output_path", "job_name", "output_file",
                                      "port", "interface", "log_level",   "level"};
  const std::string last = path.substr(path.rfind('/') + 1);
  return path.starts_with("/accelerator") || path.starts_with("/comm/") || path.starts_with("/plugins") ||
         path.starts_with("/dump_state") ||
         std::any_of(std::begin(kLast), std::end(kLast), [&](const char* name) { return last == name; });
}

// A checkpoint identifies a parameter only by its name. Parameters with the same name on two stages
// would be read as one tensor, which is correct only if they are tied.
void refuse_equal_names(const MeshGroups& mesh, const ParameterStore& store) {
  std::string mine = formatted("{}\n", mesh.pipe_stage());
  for (const auto& range : store.ranges())
    for (const auto& parameter : range.parameters) mine += formatted("{}\t{}\n", parameter.name, range.tie);
  std::map<std::string, std::pair<std::string, std::string>> first;  // the stage and the tie of each parameter name
  for (const std::string& text : mesh.model()->links().host.gather_texts(mine)) {
    const std::vector<std::string> lines = split(text, '\n');
    for (size_t i = 1; i < lines.size(); ++i) {
      const size_t tab = lines[i].find('\t');
      const std::string name = lines[i].substr(0, tab), tie = lines[i].substr(tab + 1);
      const auto& [stage, its_tie] = first.emplace(name, std::pair(lines[0], tie)).first->second;
      if (stage != lines[0] && (tie.empty() || tie != its_tie))
        throw Error(ErrorCode::kConfig,
                    formatted("pipeline stages {} and {} both have a parameter '{}': a checkpoint could not tell them apart",
                              stage, lines[0], name),
                    "build each stage's modules under the names that they have in the whole model; what both hold of one tensor "
                    "is declared (declare_tied in gannet/split.h)");
    }
  }
}

}  // namespace

void agree_on_model(const RankContext& context, const ParameterStore& store) {
  if (context.world_group->size() == 1) return;
  const config::Settings& settings = context.settings();
  std::string same = formatted("ZeRO stage {}, reduce_bucket_size {}, micro-batch {}, accumulation {}{}\n", settings.zero.stage,
                               settings.zero.reduce_bucket_size, settings.micro_batch_size, settings.accumulation_steps,
                               observe::is_wanted(settings) ? ", with a monitor" : "");
  // The effective config without settings specific to one machine or process, to detect a stale
  // copy of the file.
  for (const auto& entry : context.resolved.effective)
    if (!may_differ(entry.path)) same += formatted("{} = {}\n", config::dotted(entry.path), entry.value.to_json());
  std::string parameters;
  for (const auto& range : store.ranges())
    for (const auto& parameter : range.parameters) {
      parameters += formatted("{} {} (gradient {}, group {}) {}\n", parameter.name, c10::toString(range.dtype),
                              c10::toString(range.grad_dtype), range.group,
                              parameter.split ? formatted("{} split{}", shape_text(parameter.split->shape),
                                                          parameter.split->is_along_expert ? " among experts' ranks" : "")
                                              : shape_text(parameter.shape));
      if (range.gradient_ratio != 1) parameters += formatted("  its gradient times {}\n", range.gradient_ratio);
    }
  constexpr const char* kWhat = "the config, the model's parameters or the batch sizes";
  if (!context.mesh->has_pipe_stages()) return agree(context, kWhat, same + parameters);
  agree(context, kWhat, same);  // stages own different parameters; along the other axes, the parameters are the same
  if (context.host_group->size() > 1) control::agree(*context.host_group, kWhat, parameters);
  if (context.tensor_group) control::agree(*context.tensor_group, kWhat, parameters);
  refuse_equal_names(*context.mesh, store);
}

void agree_on_plugins(const RankContext& context) {
  if (context.world_group->size() > 1)
    agree(context, "plugins (kind, name, version, hash)", control::list_of(context.registry->opened()));
}

// Compares along the data axis only: a pipeline stage has its own tensors, and a description may
// depend on them.
void agree_on_descriptions(const RankContext& context, const std::vector<Group>& groups, const Schedule& schedule) {
  if (context.host_group->size() == 1) return;
  const auto compare = [&](const plugin::Plugin& plugin, const std::string& of, const std::string& mine) {
    const std::string found = control::disagreement(of, context.host_group->gather_texts(mine));
    if (!found.empty())
      throw plugin::fault(plugin, formatted("{} plugin {} {} ({}), in describe: {}", plugin::kind_name(plugin.kind()),
                                            plugin.name(), plugin.version(), plugin.file, found));
  };
  for (const Group& group : groups)
    if (group.optimizer)
      compare(group.optimizer->plugin(), formatted("what the optimizer needs for the parameter group '{}'", group.name),
              group.optimizer->description());
  if (const Scheduler* scheduler = schedule.plugin())
    compare(scheduler->plugin(), "what the schedule sets and keeps", scheduler->description());
}

// Compares along the data axis only: pipeline stages own different parameters, and so have
// different optimizers.
void agree_on_program_optimizer(const RankContext& context, const std::string& text) {
  if (context.host_group->size() > 1) control::agree(*context.host_group, "the program's own optimizer", text);
}

}  // namespace gannet
