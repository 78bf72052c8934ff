// Cost of a call across the plugin contract: Optimizer::update on an empty piece, including the
// host's overhead (a buffer for the plugin's error text, the exception barrier), against the same
// work called within the program.
//
//   plugin_calls FILE...    one optimizer each; those in tests/sdk/shelf return from update at once
//
// A round is 2 million calls of each; the last line is JSON with the medians, in ns per call.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "interfaces/optimizer.h"

namespace {

constexpr int kCalls = 2'000'000, kRounds = 9;

// Like a plugin's function: not inlined, and it reads its arguments.
__attribute__((noinline)) int32_t returns_at_once(const gannet_update_args* args) {
  asm volatile("" : : "r"(args) : "memory");
  return args->segment_count == 0 ? GANNET_OK : GANNET_INTERNAL;
}

template <class Body>
double nanoseconds_a_call(Body&& body) {
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < kCalls; ++i) body();
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - began).count() / kCalls;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> files(argv + 1, argv + argc);
  if (files.empty()) {
    std::fprintf(stderr, "plugin_calls FILE...: name optimizer plugins, such as those of build/tests/shelf\n");
    return 2;
  }
  gannet::plugin::Registry registry({});
  const gannet::Host host;
  std::string json;
  for (const std::string& file : files) {
    const gannet::plugin::Plugin& plugin = *registry.open_file(file).at(0);
    gannet::Optimizer optimizer(plugin, gannet::plugin::parse_params(plugin, {}, {}), host);
    optimizer.describe({});
    gannet_update_args args{};
    args.struct_size = sizeof(args);
    args.param_dtype = args.grad_dtype = GANNET_FLOAT32;
    args.grad_scale = args.step = 1;
    args.hyper = optimizer.hyper_values().data();
    args.hyper_count = optimizer.hyper_values().size();
    std::vector<void*> states(optimizer.states().size());
    args.states = states.data();
    args.state_count = states.size();
    std::vector<double> within, across;
    for (int round = 0; round <= kRounds; ++round) {  // the first one is a warm-up
      const double plain = nanoseconds_a_call([&] { returns_at_once(&args); });
      const double call = nanoseconds_a_call([&] { optimizer.update(args); });
      if (round == 0) continue;
      within.push_back(plain);
      across.push_back(call);
    }
    const std::string name = file.substr(file.rfind('/') + 1);
    std::printf("%s: %.2f ns across, %.2f ns within\n", name.c_str(), median(across), median(within));
    char entry[256];
    std::snprintf(entry, sizeof(entry), "%s\"%s\": %.2f", json.empty() ? "" : ", ", name.c_str(), median(across));
    json += entry;
  }
  std::printf("{\"figure\": \"plugin_calls_ns\", %s, \"bar\": 20}\n", json.c_str());
}
