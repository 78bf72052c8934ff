#include "kit/bench.h"

#include <gannet/error.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <memory>
#include <set>

#include "base/format.h"
#include "base/parallel.h"
#include "base/text.h"
#include "interfaces/host.h"
#include "interfaces/optimizer.h"
#include "kit/json.h"
#include "kit/stepped_optimizer.h"
#include "plugin/note.h"
#include "plugin/open.h"
#include "plugin/schema.h"

namespace gannet::kit {
namespace {

constexpr uint64_t kGrain = 16384;
constexpr uint64_t kBandwidthNumel = 1 << 24;  // far beyond the caches

// The machine's memory bandwidth in bytes per second, as an update uses memory: two arrays are read
// and one of them is written, by the same threads.
class Bandwidth {
 public:
  Bandwidth() : a_(kBandwidthNumel * 4), b_(kBandwidthNumel * 4) {
    fill(a_.data(), GANNET_FLOAT32, kBandwidthNumel, 1e-3f);
    fill(b_.data(), GANNET_FLOAT32, kBandwidthNumel, 1e-3f);
  }
  double run() {
    double best = 0;
    for (int time = 0; time < 3; ++time) best = std::max(best, pass());
    return best;
  }

 private:
  // Processes one cache line at a time and prefetches like the SDK's loops: a single thread would
  // otherwise be limited by latency.
  double pass() {
    constexpr uint64_t kLine = 16, kAhead = 768;
    const auto begin = std::chrono::steady_clock::now();
    gannet::parallel_for(0, kBandwidthNumel, kGrain, [&](uint64_t first, uint64_t last) {
      auto* const a = static_cast<float*>(a_.data());
      const auto* const b = static_cast<const float*>(b_.data());
      for (uint64_t line = first; line < last; line += kLine) {
        __builtin_prefetch(a + line + kAhead, 1);
        __builtin_prefetch(b + line + kAhead);
        for (uint64_t i = line; i < line + kLine; ++i) a[i] = a[i] * 0.5f + b[i];
      }
    });
    return 12.0 * kBandwidthNumel / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  Memory a_, b_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

struct Candidate {
  std::string name;
  std::unique_ptr<SteppedOptimizer> stepped;
  std::vector<double> sums, steps, rates;  // by round: seconds, seconds, the step's bandwidth relative to the machine's
};

// The types to run: the requested ones or, if the optimizer supports only that, bf16 without
// masters.
DTypes types_for(const plugin::Plugin& plugin, const Dict& params, const std::string& dtype) {
  const Host host;
  Optimizer optimizer(plugin, plugin::parse_params(plugin, params, [](const std::string&) { return "--params"; }), host);
  optimizer.describe({});
  const DTypes asked = dtype == "bf16"   ? DTypes{GANNET_FLOAT32, GANNET_BFLOAT16, GANNET_BFLOAT16}
                       : dtype == "fp16" ? DTypes{GANNET_FLOAT32, GANNET_FLOAT16, GANNET_FLOAT16}
                       : dtype == "fp64" ? DTypes{GANNET_FLOAT64, GANNET_FLOAT64, GANNET_DTYPE_NONE}
                                         : DTypes{GANNET_FLOAT32, GANNET_FLOAT32, GANNET_DTYPE_NONE};
  const DTypes alone{GANNET_BFLOAT16, GANNET_BFLOAT16, GANNET_DTYPE_NONE};
  const auto takes = [&](DTypes types) {
    try {
      optimizer.require_support(static_cast<gannet_dtype>(types.param), static_cast<gannet_dtype>(types.grad),
                                static_cast<gannet_dtype>(types.out));
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  if (!takes(asked) && takes(alone)) return alone;
  optimizer.require_support(static_cast<gannet_dtype>(asked.param), static_cast<gannet_dtype>(asked.grad),
                            static_cast<gannet_dtype>(asked.out));
  return asked;
}

// The given params that the plugin declares; several optimizers share one --params.
Dict declared_of(const plugin::Plugin& plugin, const Dict& params, std::set<std::string>& unknown) {
  Dict own;
  for (const gannet_param_spec* spec : plugin::specs_of(*plugin.descriptor))
    if (const Value* value = params.find(spec->name)) {
      own[spec->name] = *value;
      unknown.erase(spec->name);
    }
  return own;
}

std::vector<Candidate> candidates_of(const BenchOptions& options) {
  std::vector<Candidate> all;
  const Value params = options.params.empty() ? Value(Dict()) : parse_json(options.params);
  std::set<std::string> unknown;  // params that none of the optimizers declares
  for (const auto& [name, value] : params.as_dict().entries()) unknown.insert(name);
  for (const std::string& path : options.files) {
    std::error_code failed;
    const auto real = std::filesystem::canonical(path, failed);
    if (failed)
      throw Error(ErrorCode::kNotFound, formatted("there is no plugin file '{}': {}", printable(path), failed.message()));
    bool is_any = false;
    for (const plugin::Plugin* plugin : plugin::open(plugin::read_candidate(real.string(), plugin::Fingerprint::kAny))) {
      if (plugin->kind() != GANNET_KIND_OPTIMIZER || plugin->device() != "cpu") continue;
      if (!options.plugins.empty() &&
          std::find(options.plugins.begin(), options.plugins.end(), plugin->name()) == options.plugins.end())
        continue;
      is_any = true;
      const Dict own = declared_of(*plugin, params.as_dict(), unknown);
      const DTypes types = types_for(*plugin, own, options.dtype);
      all.push_back({plugin->name(), std::make_unique<SteppedOptimizer>(*plugin, own, types, options.numel), {}, {}, {}});
    }
    if (!is_any && options.plugins.empty())
      throw Error(ErrorCode::kArgument, formatted("the file '{}' has no optimizer for the host's memory", printable(path)),
                  "bench steps optimizers; `gannet plugins info FILE` lists what a file has");
  }
  for (const std::string& name : options.plugins)
    if (std::none_of(all.begin(), all.end(), [&](const Candidate& one) { return one.name == name; }))
      throw Error(ErrorCode::kArgument, formatted("none of the files has the optimizer '{}' (--plugin)", printable(name)),
                  "leave out --plugin, or name one that `gannet plugins info FILE` lists");
  if (!unknown.empty())
    throw Error(ErrorCode::kArgument,
                formatted("none of the optimizers has a parameter '{}' (--params)", printable(*unknown.begin())),
                "`gannet plugins info FILE` lists their params");
  return all;
}

}  // namespace

int bench_files(const BenchOptions& options) {
  std::vector<Candidate> all = candidates_of(options);
  Bandwidth bandwidth;
  std::vector<double> machine;
  const auto bytes_of = [&](const Candidate& one) { return options.bytes > 0 ? options.bytes : one.stepped->update_bytes(); };
  std::cout << formatted("{} parameters, {} threads, {} rounds; in each round every optimizer steps once\n\n",
                         all[0].stepped->numel(), parallel_thread_count(), options.rounds);
  for (int round = -1; round < options.rounds; ++round) {  // the first touches the memory and is not counted
    const double first = bandwidth.run();
    for (Candidate& one : all) {
      const auto [sums, step] = one.stepped->run();
      if (round < 0) continue;
      one.sums.push_back(sums);
      one.steps.push_back(step);
    }
    const double of_round = std::max(first, bandwidth.run());
    if (round < 0) continue;
    machine.push_back(of_round);
    std::cout << formatted("round {}: {:.1f} GB/s", round + 1, of_round / 1e9);
    for (Candidate& one : all) {
      one.rates.push_back(bytes_of(one) * static_cast<double>(one.stepped->numel()) / one.steps.back() / of_round);
      std::cout << formatted("  {} {:.2f} ms", printable(one.name), one.steps.back() * 1e3);
    }
    std::cout << '\n';
  }
  const auto base = std::find_if(all.begin(), all.end(), [](const Candidate& one) { return one.name == "AdamW"; });
  const Candidate& beside = base == all.end() ? all[0] : *base;
  std::cout << formatted("\nmedians; the machine reads and writes {:.1f} GB/s\n", median(machine) / 1e9);
  std::cout << formatted("{:<24}{:>10}{:>10}{:>12}{:>16}{:>14}\n", "optimizer", "sums ms", "step ms", "bytes", "of its bytes'",
                         "x " + beside.name);
  for (const Candidate& one : all) {
    std::vector<double> slower, ratios;
    for (size_t r = 0; r < one.steps.size(); ++r) {
      slower.push_back(1 / one.rates[r]);
      ratios.push_back(one.steps[r] / beside.steps[r]);
    }
    std::cout << formatted("{:<24}{:>10.2f}{:>10.2f}{:>12.1f}{:>14.2f} x{:>14.3f}\n", printable(one.name), median(one.sums) * 1e3,
                           median(one.steps) * 1e3, bytes_of(one), median(slower), median(ratios));
  }
  std::cout
      << "\nbytes: per parameter and step, as --bytes says, or those of an update that reads the gradient and reads and writes\n"
         "the parameter and each state once. of its bytes': the step's time over that of these bytes at the machine's rate.\n";
  return 0;
}

}  // namespace gannet::kit
