// Writes the metrics file: JSON lines, schema 1.
#include <ctime>

#include "base/machine.h"
#include "base/machine_memory.h"
#include "config/document.h"
#include "observe/json_line.h"
#include "observe/output.h"
#include "observe/writers.h"

namespace gannet::observe {
namespace {

Value number_or_null(const std::optional<double>& number) { return number ? Value(*number) : Value(); }

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

Dict machine() {
  const Machine machine = this_machine();
  const MachineMemory memory = machine_memory();
  List sets;
  for (const auto& name : machine.instruction_sets) sets.emplace_back(name);
  return Dict{
      {"host", machine.host},
      {"system", machine.system},
      {"distribution", machine.distribution},
      {"processor", machine.processor},
      {"cores", machine.cores},
      {"instruction_sets", std::move(sets)},
      {"memory_bytes", static_cast<int64_t>(memory.physical_bytes)},
      {"memory_limit_bytes", memory.cgroup.limit_bytes ? Value(static_cast<int64_t>(*memory.cgroup.limit_bytes)) : Value()}};
}

template <class Number>
Dict by_name(const std::vector<std::pair<std::string, Number>>& numbers) {
  Dict dict;
  for (const auto& [name, number] : numbers) dict[name] = number;
  return dict;
}

class MetricsFile : public Writer {
 public:
  explicit MetricsFile(const std::string& path) : output_({.who = "gannet.metrics"}), file_(output_.open(path)) {}

  void run(const Run& run) override {
    List config, plugins;
    for (const auto& entry : run.config)
      config.push_back(Dict{{"key", config::dotted(entry.path)}, {"value", entry.value}, {"origin", entry.origin}});
    for (const auto& plugin : run.plugins)
      plugins.push_back(Dict{{"kind", plugin.kind}, {"name", plugin.name}, {"version", plugin.version}, {"file", plugin.file}});
    List groups;
    for (const auto& group : run.groups)
      groups.push_back(Dict{{"name", group.name}, {"parameters", group.parameters}, {"hyper", by_name(group.hyper)}});
    add(Dict{{"kind", "run"},
             {"schema", 1},
             {"gannet", GANNET_VERSION},
             {"started_at", utc_now()},
             {"world_size", run.world_size},
             {"global_step", run.global_step},
             {"parameters", run.parameters},
             {"train_batch_size", run.train_batch_size},
             {"micro_batch_size", run.micro_batch_size},
             {"gradient_accumulation_steps", run.accumulation_steps},
             {"zero_stage", run.zero_stage},
             {"dtype", run.dtype},
             {"config", std::move(config)},
             {"plugins", std::move(plugins)},
             {"groups", std::move(groups)},
             {"machine", machine()}});
  }

  void step(const Step& step, double time) override {
    List rates;
    for (const double rate : step.lr) rates.emplace_back(rate);
    Dict line{{"kind", "step"},
              {"step", step.step},
              {"samples", step.samples},
              {"time", time},
              {"loss", number_or_null(step.loss)},
              {"lr", std::move(rates)},
              {"grad_norm", number_or_null(step.grad_norm)},
              {"loss_scale", step.loss_scale},
              {"applied", step.applied},
              {"reason", step.reason},
              {"seconds", step.seconds},
              {"phases", by_name(step.phases)},
              {"counts", by_name(step.counts)},
              {"memory_bytes", step.memory_bytes},
              {"values", by_name(step.values)}};
    if (!step.memory.empty()) line["memory"] = by_name(step.memory);
    add(line);
  }

  void values(const LateValues& late, double time) override {
    add(Dict{
        {"kind", "values"}, {"step", late.step}, {"samples", late.samples}, {"time", time}, {"values", by_name(late.values)}});
  }
  void event(const Event& event, double time) override {
    add(Dict{{"kind", "event"}, {"step", event.step}, {"time", time}, {"what", event.what}, {"text", event.text}});
  }

  void flush() override { output_.flush(); }

 private:
  void add(const Dict& line) { output_.add(file_, json_line(line)); }

  Output output_;
  size_t file_;
};

}  // namespace

std::unique_ptr<Writer> metrics_file(const std::string& path) { return std::make_unique<MetricsFile>(path); }

}  // namespace gannet::observe
