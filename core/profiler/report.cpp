#include "profiler/report.h"

#include <algorithm>
#include <map>

#include "base/format.h"
#include "profiler/units.h"

namespace gannet::profiler {
namespace {

using Module = ModelProfile::Module;

std::string padded(std::string text, size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}
std::string right(const std::string& text, size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string rule(const std::string& title) {
  constexpr size_t kWidth = 100;
  const size_t dashes = kWidth > title.size() + 2 ? kWidth - title.size() - 2 : 0;
  return formatted("{} {} {}\n", std::string(dashes / 2, '-'), title, std::string(dashes - dashes / 2, '-'));
}

std::string line(const std::string& what, const std::string& value) {
  return formatted("{}  {}\n", padded(formatted("{}:", what), 64), value);
}

std::string rate(int64_t flops, double seconds) {
  return seconds > 0 ? decimal(static_cast<double>(flops) / seconds, "FLOPS") : "-";
}

std::string summary(const ModelProfile& profile, const std::optional<ProfiledStep>& run) {
  const auto &forward = profile.forward(), &backward = profile.backward();
  std::string text;
  if (run) {
    text += line("world size", std::to_string(run->world_size));
    text += line("data parallel size", std::to_string(run->world_size));
    text += line("model parallel size", "1");
    text += line("batch size per GPU", std::to_string(run->micro_batch));
    text += line("ZeRO stage", std::to_string(run->zero_stage));
    text += line("params per GPU", decimal(static_cast<double>(run->parameters_here), "", "B"));
  }
  text += line("params of model", decimal(static_cast<double>(profile.parameters()), "", "B"));
  text += line("fwd MACs per GPU", decimal(static_cast<double>(forward.macs), "MACs"));
  text += line("fwd flops per GPU", decimal(static_cast<double>(forward.flops)));
  text += line("fwd latency", duration(profile.forward_seconds));
  text += line("fwd FLOPS per GPU = fwd flops / fwd latency", rate(forward.flops, profile.forward_seconds));
  if (backward.flops == 0 && profile.backward_seconds == 0) return text;
  const auto again = static_cast<int64_t>(run ? run->recompute_fwd_factor * static_cast<double>(forward.flops) : 0);
  const std::string recomputed =
      again > 0 ? formatted(" + {} * fwd flops", with_unit(run->recompute_fwd_factor, "%g", "", "")) : "";
  text += line("bwd MACs per GPU, counted", decimal(static_cast<double>(backward.macs), "MACs"));
  text += line("bwd flops per GPU, counted", decimal(static_cast<double>(backward.flops)));
  text += line("bwd latency", duration(profile.backward_seconds));
  text += line(formatted("bwd FLOPS per GPU = bwd flops{} / bwd latency", recomputed),
               rate(backward.flops + again, profile.backward_seconds));
  const int64_t both = forward.flops + backward.flops + again;
  text += line(formatted("fwd+bwd flops per GPU{}", recomputed), decimal(static_cast<double>(both)));
  text += line("fwd+bwd FLOPS per GPU", rate(both, profile.forward_seconds + profile.backward_seconds));
  if (!run) return text;
  text += line("step latency", duration(run->step_seconds));
  const std::string micro_batches =
      run->accumulation_steps == 1 ? "" : formatted(" of {} micro-batches", run->accumulation_steps);
  text += line(formatted("iter latency = fwd + bwd{} + step", micro_batches), duration(run->iteration_seconds));
  text += line(formatted("FLOPS per GPU = fwd+bwd flops{} / iter latency", micro_batches),
               rate(both * run->accumulation_steps, run->iteration_seconds));
  if (run->iteration_seconds > 0)
    text += line("samples/second", with_unit(static_cast<double>(run->micro_batch * run->accumulation_steps * run->world_size) /
                                                 run->iteration_seconds,
                                             "%.2f", "", ""));
  return text;
}

int64_t deepest(const ModelProfile& profile, const ProfileText& text) {
  int64_t depth = 0;
  for (const Module& module : profile.modules) depth = std::max(depth, module.depth);
  return text.module_depth < 0 ? depth : std::min(depth, text.module_depth);
}

// Lists the module types at one depth, sorted by one figure, largest first.
template <class Figure, class Format>
std::string top(const ModelProfile& profile, int64_t depth, int64_t count, Figure figure, Format format) {
  std::map<std::string, double> sums;
  for (const Module& module : profile.modules)
    if (module.depth == depth) sums[module.type] += static_cast<double>(figure(module));
  std::vector<std::pair<std::string, double>> order(sums.begin(), sums.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (size_t i = 0; i < order.size() && static_cast<int64_t>(i) < count; ++i)
    text += formatted("{}{}: {}", i ? ", " : "", order[i].first, format(order[i].second));
  return formatted("{}\n", text);
}

std::string aggregated(const ModelProfile& profile, const ProfileText& text) {
  std::string out = formatted("Top {} kinds of module in params, MACs and fwd latency, by depth:\n", text.top_modules);
  for (int64_t depth = 0; depth <= deepest(profile, text); ++depth) {
    out += formatted("depth {}:\n", depth);
    out += formatted("    params      - {}", top(
                                                 profile, depth, text.top_modules, [](const Module& m) { return m.parameters; },
                                                 [](double n) { return decimal(n, "", "B"); }));
    out += formatted("    MACs        - {}", top(
                                                 profile, depth, text.top_modules, [](const Module& m) { return m.forward.macs; },
                                                 [](double n) { return decimal(n, "MACs"); }));
    out += formatted("    fwd latency - {}", profile.is_timed ? top(
                                                                    profile, depth, text.top_modules,
                                                                    [](const Module& m) { return m.forward.seconds; }, duration)
                                                              : "not timed: the device runs operators later\n");
  }
  return out;
}

std::string detailed(const ModelProfile& profile, int64_t depth) {
  std::string out = formatted(
      "Each module with those below it: params, fwd MACs, fwd flops, {}bwd flops{}. Latency is the time inside operators.\n",
      profile.is_timed ? "fwd latency, fwd FLOPS, " : "", profile.is_timed ? ", bwd latency" : "");
  const Module& whole = profile.modules.front();
  for (const Module& m : profile.modules) {
    if (m.depth > depth) continue;
    const std::string own = m.name.substr(m.name.rfind('.') + 1);  // if there is no dot, npos + 1 is 0
    out +=
        formatted("{}{}{}: ", std::string(static_cast<size_t>(2 * m.depth), ' '), m.depth ? formatted("({}) ", own) : "", m.type);
    out += formatted("{} = {} params, ", decimal(static_cast<double>(m.parameters), "", "B"),
                     percent(static_cast<double>(m.parameters), static_cast<double>(whole.parameters)));
    out += formatted("{} = {}, ", decimal(static_cast<double>(m.forward.macs), "MACs"),
                     percent(static_cast<double>(m.forward.macs), static_cast<double>(whole.forward.macs)));
    out += formatted("{} flops", decimal(static_cast<double>(m.forward.flops)));
    if (profile.is_timed)
      out += formatted(", {} = {}, {}", duration(m.forward.seconds), percent(m.forward.seconds, whole.forward.seconds),
                       rate(m.forward.flops, m.forward.seconds));
    if (whole.backward.flops > 0)
      out += formatted("; bwd {} flops{}", decimal(static_cast<double>(m.backward.flops)),
                       profile.is_timed ? formatted(", {}", duration(m.backward.seconds)) : "");
    out += "\n";
  }
  return out;
}

std::string operators(const ModelProfile& profile) {
  constexpr size_t kNameWidth = 62;  // fits the name of attention's backward
  std::string out = formatted("{}{}{}{}{}{}\n", padded("operator", kNameWidth), padded("kind", 15), right("fwd calls", 10),
                              right("fwd flops", 12), right("bwd calls", 11), right("bwd flops", 12));
  int64_t others = 0;
  for (const auto& op : profile.operators) {
    if (op.forward.flops + op.backward.flops == 0) {
      ++others;
      continue;
    }
    out += formatted("{}{}{}{}{}{}\n", padded(op.name, kNameWidth), padded(op.kind, 15),
                     right(std::to_string(op.forward_calls), 10), right(decimal(static_cast<double>(op.forward.flops)), 12),
                     right(std::to_string(op.backward_calls), 11), right(decimal(static_cast<double>(op.backward.flops)), 12));
  }
  return formatted("{}and {} operators that move, make or compare data, which count as none\n", out, others);
}

std::string memory(const ModelProfile& profile, int64_t depth, const std::optional<ProfiledStep>& run) {
  std::string out =
      formatted("Bytes on this rank of each module with those below it{}. Activations: what is alive when backward begins.\n",
                run && !run->places.empty() ? formatted("; {}", run->places) : "");
  const auto cells = [](const std::vector<std::string>& texts) {
    std::string row;
    for (const auto& text : texts) row += right(text, 13);
    return formatted("{}\n", row);
  };
  out += padded("module", 40) + cells({"params", "gradients", "masters", "states", "buffers", "activations", "all"});
  for (const Module& m : profile.modules) {
    if (m.depth > depth) continue;
    const auto& bytes = m.memory;
    out += padded(m.name.empty() ? m.type : m.name, 40) +
           cells({binary(bytes.parameters), binary(bytes.gradients), binary(bytes.masters), binary(bytes.states),
                  binary(bytes.buffers), binary(bytes.activations), binary(bytes.total())});
  }
  return out;
}

}  // namespace

std::string report(const ModelProfile& profile, const ProfileText& text, const std::optional<ProfiledStep>& run) {
  std::string out = formatted("\n{}", rule("Gannet FLOPs profiler"));
  if (run) out += formatted("Profile of step {}{}\n", run->step, run->accumulation_steps > 1 ? ", its first micro-batch" : "");
  out += formatted("flops: floating-point operations, a multiply-add is two; MACs: multiply-adds; FLOPS: flops per second.\n\n{}",
                   summary(profile, run));
  out += formatted("\n{}{}", rule("Aggregated profile per GPU"), aggregated(profile, text));
  if (text.detailed) {
    const int64_t depth = deepest(profile, text);
    out += formatted("\n{}{}", rule("Modules"), detailed(profile, depth));
    out += formatted("\n{}{}", rule("Operators"), operators(profile));
    out += formatted("\n{}{}", rule("Memory"), memory(profile, depth, run));
  }
  if (!profile.not_counted.empty()) {
    out += formatted("\n{}Operators without a rule, with their calls; what they compute is in no figure above:\n",
                     rule("Not counted"));
    for (const auto& unknown : profile.not_counted) out += formatted("    {}  x{}\n", unknown.name, unknown.calls);
  }
  return formatted("{}{}\n", out, std::string(100, '-'));
}

}  // namespace gannet::profiler
