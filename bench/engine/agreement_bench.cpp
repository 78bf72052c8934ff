// Cost of agreement between ranks: a GPT of about 30M parameters on several ranks, with the
// fingerprint of replicated parameters every 100 steps (the default) and without it, alternating
// step by step; one round is one whole period. Since the noise of a shared machine exceeds the
// cost, one fingerprint is also measured separately: step() with a fingerprint in every step
// minus step() without, divided by the period. Both are given in wall time and in processor time
// over all threads, which other programs disturb less. Also measures one call that the watch
// compares, with and without its 24 facts.
//
//   gannet run --num_procs 2 agreement_bench [--tokens 512] [--rounds 5] [--period 100] [--stage 0] [--dtype fp32]
//   --control yes: rounds with no fingerprint on either side: noise and other differences between two engines
#include <ATen/Context.h>
#include <ATen/ops/randint.h>
#include <gannet/distributed.h>
#include <gannet/gannet.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>

#include "common/gpt.h"
#include "common/rounds.h"
#include "control/world.h"

namespace {

using gannet::bench::median;
using gannet::bench::seconds;

std::string option(int argc, char** argv, const char* name, const char* fallback) {
  for (int i = 1; i + 1 < argc; ++i)
    if (!std::strcmp(argv[i], name)) return argv[i + 1];
  return fallback;
}

struct Cost {
  double seconds = 0, cpu_seconds = 0;  // cpu_seconds: of this process, all threads
  void operator+=(const Cost& other) {
    seconds += other.seconds;
    cpu_seconds += other.cpu_seconds;
  }
};

double cpu_now() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

template <class Body>
Cost cost_of(Body&& body) {
  const double before = cpu_now(), wall = seconds(body);
  return {wall, cpu_now() - before};
}

struct Run {
  int64_t tokens, stage;
  std::string dtype;
  gannet::ProcessGroup& group;
  at::Tensor inputs, targets;  // [B, T] int64
};

constexpr int64_t kLength = 128;
constexpr int kFingerprints = 20;

// A model with its own engine.
class Contender {
 public:
  Contender(const Run& run, const gannet::Dict& ours) : run_(run) {
    const gpt2::GptOptions size = gannet::bench::gpt_of_30m();
    at::manual_seed(1);
    gpt2::Gpt model(size);
    for (auto& parameter : model->parameters()) numel_ += parameter.numel();
    gannet::Dict config{{"train_micro_batch_size_per_gpu", run.tokens / kLength},
                        {"gradient_clipping", 1.0},
                        {"zero_optimization", gannet::Dict{{"stage", run.stage}}},
                        {"gannet", ours},
                        {"optimizer", gannet::Dict{{"type", "AdamW"}, {"params", gannet::Dict{{"lr", 1e-4}}}}}};
    if (run.dtype != "fp32") config[run.dtype] = gannet::Dict{{"enabled", true}};
    engine_ = gannet::initialize(model, {.config = config}).engine;
  }
  void backward() { engine_->backward(engine_->forward(run_.inputs, run_.targets)); }
  // All ranks start together, so that no rank's time includes a wait for another's backward.
  Cost update() {
    run_.group.barrier();
    return cost_of([this] { engine_->step(); });
  }
  Cost whole_step() {
    return cost_of([this] {
      backward();
      engine_->step();
    });
  }
  int64_t numel() const { return numel_; }

 private:
  const Run& run_;
  int64_t numel_ = 0;
  std::shared_ptr<gannet::Engine<gpt2::GptImpl>> engine_;
};

// Returns median microseconds per call over the rounds: without facts, and with 24 facts, two of
// which change.
std::pair<double, double> calls(gannet::control::World& world, int rounds) {
  constexpr int kCalls = 2'000;
  gannet::control::Facts facts(1u << 20);  // a number that no engine uses
  std::vector<size_t> rows;
  for (int i = 0; i < 24; ++i) rows.push_back(facts.add("fact " + std::to_string(i)));
  int64_t number = 0;
  std::vector<double> bare, agreed;
  for (int round = 0; round <= rounds * 4; ++round) {
    world.enter("a round of calls");  // synchronises the ranks, with nothing in flight
    const double without = seconds([&] {
      for (int i = 0; i < kCalls; ++i)
        gannet::control::Watch::Call(world.watch(), world.links().host, "step", ++number, "",
                                     gannet::control::Watch::Call::kAtOnce);
    });
    world.enter("a round of calls");
    const double with = seconds([&] {
      for (int i = 0; i < kCalls; ++i) {
        facts.set(rows[0], static_cast<double>(i % 4));
        facts.set(rows[1], 1e-4 * static_cast<double>(i));
        world.enter(world.links().host, "step", ++number, facts);
      }
    });
    if (round == 0) continue;
    bare.push_back(without / kCalls * 1e6);
    agreed.push_back(with / kCalls * 1e6);
  }
  return {median(bare), median(agreed)};
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = std::stoi(option(argc, argv, "--rounds", "5")), period = std::stoi(option(argc, argv, "--period", "100"));
  const bool is_control = option(argc, argv, "--control", "no") == "yes";
  const auto group = gannet::init_distributed();
  Run run{std::stoll(option(argc, argv, "--tokens", "512")),
          std::stoll(option(argc, argv, "--stage", "0")),
          option(argc, argv, "--dtype", "fp32"),
          *group,
          {},
          {}};
  run.inputs = at::randint(8192, {run.tokens / kLength, kLength}, at::kLong);
  run.targets = at::randint(8192, {run.tokens / kLength, kLength}, at::kLong);
  const bool tells = group->rank() == 0;
  const auto [bare_us, agreed_us] = calls(*group->world(), rounds);
  if (tells) std::printf("a call: %.2f us, with facts %.2f us\n", bare_us, agreed_us);
  std::fflush(stdout);

  auto without = std::make_unique<Contender>(run, gannet::Dict{{"fingerprint_every", 0}});
  auto with = std::make_unique<Contender>(run, gannet::Dict{{"fingerprint_every", is_control ? 0 : period}});
  with->whole_step();
  without->whole_step();
  std::vector<double> ratios, cpu_ratios, with_s, without_s, without_cpu_s;
  for (int round = 1; round <= rounds; ++round) {
    Cost one, other;
    for (int step = 0; step < period; ++step)
      if (step % 2 == 0) {
        one += with->whole_step();
        other += without->whole_step();
      } else {
        other += without->whole_step();
        one += with->whole_step();
      }
    with_s.push_back(one.seconds / period);
    without_s.push_back(other.seconds / period);
    without_cpu_s.push_back(other.cpu_seconds / period);
    ratios.push_back(one.seconds / other.seconds);
    cpu_ratios.push_back(one.cpu_seconds / other.cpu_seconds);
    if (tells)
      std::printf("round %d: a step with %.2f ms, without %.2f ms, ratio %.5f; of processor time %.5f\n", round,
                  one.seconds / period * 1e3, other.seconds / period * 1e3, ratios.back(), cpu_ratios.back());
    std::fflush(stdout);
  }

  with.reset();
  with = std::make_unique<Contender>(run, gannet::Dict{{"fingerprint_every", 1}});
  std::vector<double> alone, alone_cpu;
  for (int round = 0; round <= kFingerprints; ++round) {
    with->backward();
    const Cost every = with->update();
    without->backward();
    const Cost never = without->update();
    if (round == 0) continue;
    alone.push_back(every.seconds - never.seconds);
    alone_cpu.push_back(every.cpu_seconds - never.cpu_seconds);
    if (tells)
      std::printf("fingerprint %d: step() with it %.2f ms, without %.2f ms, itself %.2f ms, of processor time %.2f ms\n", round,
                  every.seconds * 1e3, never.seconds * 1e3, alone.back() * 1e3, alone_cpu.back() * 1e3);
    std::fflush(stdout);
  }
  if (tells)
    std::printf(
        "{\"figure\": \"agreement\", \"parameters\": %lld, \"tokens\": %lld, \"stage\": %lld, \"dtype\": \"%s\", \"ranks\": %u, "
        "\"rounds\": %d, \"call_us\": %.3f, \"agreed_call_us\": %.3f, \"with_ms\": %.3f, \"without_ms\": %.3f, "
        "\"fingerprint_ms\": %.3f, \"fingerprint_cpu_ms\": %.3f, \"ratio_of_steps\": %.5f, \"cpu_ratio_of_steps\": %.5f, "
        "\"share\": %.6f, \"bar\": 0.002, \"cpu_share\": %.6f}\n",
        static_cast<long long>(with->numel()), static_cast<long long>(run.tokens), static_cast<long long>(run.stage),
        run.dtype.c_str(), group->size(), rounds, bare_us, agreed_us, median(with_s) * 1e3, median(without_s) * 1e3,
        median(alone) * 1e3, median(alone_cpu) * 1e3, median(ratios), median(cpu_ratios),
        median(alone) / period / median(without_s), median(alone_cpu) / period / median(without_cpu_s));
}
