// One rule, built by every compiler, C++ library and language of the shelf, in one host: each file loads, trains to the same
// parameters, says why it refuses, and keeps its symbols to itself.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "../probe.h"
#include "interfaces/optimizer.h"
#include "kit/host.h"
#include "kit/object.h"
#include "kit/optimizer/engine.h"
#include "kit/place.h"

namespace gannet::sdk_tests {
namespace {

using testing::HasSubstr;

struct Row {
  std::string name, file, absent;  // absent: why it was not built
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

// A line each: NAME|FILE|REASON.
std::vector<Row> all_rows() {
  std::vector<Row> rows;
  std::ifstream file(SHELF_ROWS);
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    Row row;
    std::getline(fields, row.name, '|');
    std::getline(fields, row.file, '|');
    std::getline(fields, row.absent);
    rows.push_back(row);
  }
  return rows;
}

std::vector<Row> present_rows() {
  std::vector<Row> rows;
  for (const Row& row : all_rows())
    if (row.absent.empty()) rows.push_back(row);
  return rows;
}

const plugin::Plugin& steady_of(const Row& row) {
  const auto& plugins = open_file(row.file);
  if (plugins.size() != 1) throw std::runtime_error(row.file + " should have one plugin");
  return *plugins[0];
}

// The rule, written a fourth time: plain loops over whole tensors. Returns all parameters, in order.
std::vector<float> reference(const kit::Problem& problem, int steps, double grad_scale) {
  constexpr double kLr = 1e-2, kMomentum = 0.9, kLimit = 2, kDecay = 0.75;
  std::vector<std::vector<float>> param, velocity;
  for (size_t t = 0; t < problem.tensors.size(); ++t) {
    auto& values = param.emplace_back();
    for (uint64_t i = 0; i < problem.tensors[t].numel; ++i) values.push_back(static_cast<float>(problem.initial(t, i)));
    velocity.emplace_back(values.size(), 0.0f);
  }
  std::vector<double> mean(problem.groups(), 0.0);
  for (int step = 1; step <= steps; ++step)
    for (uint32_t group = 0; group < problem.groups(); ++group) {
      const auto gradient = [&](size_t t, uint64_t i) { return static_cast<float>(problem.gradient(t, i, step)); };
      double squares = 0;
      for (size_t t = 0; t < param.size(); ++t)
        for (uint64_t i = 0; problem.tensors[t].group == group && i < param[t].size(); ++i)
          squares += std::pow(gradient(t, i) * grad_scale, 2);
      const double norm = std::sqrt(squares), usual = kLimit * mean[group];
      const auto factor = static_cast<float>(grad_scale * (usual > 0 && norm > usual ? usual / norm : 1));
      for (size_t t = 0; t < param.size(); ++t)
        for (uint64_t i = 0; problem.tensors[t].group == group && i < param[t].size(); ++i) {
          velocity[t][i] = static_cast<float>(kMomentum) * velocity[t][i] + factor * gradient(t, i);
          param[t][i] -= static_cast<float>(kLr) * velocity[t][i];
        }
      mean[group] = mean[group] > 0 ? kDecay * mean[group] + (1 - kDecay) * norm : norm;
    }
  std::vector<float> all;
  for (const auto& tensor : param) all.insert(all.end(), tensor.begin(), tensor.end());
  return all;
}

class ShelfRow : public testing::TestWithParam<Row> {
 protected:
  void SetUp() override {
    if (!GetParam().absent.empty()) GTEST_SKIP() << GetParam().name << ": " << GetParam().absent;
  }
};

TEST_P(ShelfRow, TrainsAsTheReference) {
  kit::Subject subject;
  subject.plugin = &steady_of(GetParam());
  const kit::Problem problem = kit::many_shapes({});
  const kit::TrainingResult trained = kit::train(subject, problem, kit::uncut(problem, {}), {.steps = 40, .grad_scale = 0.5});
  const std::vector<float> expected = reference(problem, 40, 0.5);
  double sum = 0, expected_sum = 0;
  for (const auto& tensor : trained.params)
    for (size_t i = 0; i < tensor.size() / sizeof(float); ++i) sum += reinterpret_cast<const float*>(tensor.data())[i];
  for (const float value : expected) expected_sum += value;
  EXPECT_NEAR(sum, expected_sum, 5e-10);
}

// The sums of its parameters have the same nine decimals as those of every other row.
TEST_P(ShelfRow, TrainsOnTwoRanksAsTheOthers) { EXPECT_EQ(probe(steady_of(GetParam())), probe(steady_of(present_rows()[0]))); }

TEST_P(ShelfRow, SaysWhyItRefusesParams) {
  const plugin::Plugin& plugin = steady_of(GetParam());
  const Host host;
  try {
    const Optimizer made(plugin, plugin::parse_params(plugin, {{"limit", 1.0}, {"decay", 0.0}}, {}), host);
    FAIL() << "it took params that fit nothing";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kArgument);
    EXPECT_THAT(error.message(), HasSubstr("with 'limit' 1 and 'decay' 0 no gradient could ever grow: give 'decay' a number"));
  }
}

TEST_P(ShelfRow, SaysWhichTypesItDoesNotTake) {
  const plugin::Plugin& plugin = steady_of(GetParam());
  const Host host;
  const Optimizer made(plugin, plugin::parse_params(plugin, {}, {}), host);
  try {
    made.require_support(GANNET_FLOAT64, GANNET_FLOAT32, GANNET_DTYPE_NONE);
    FAIL() << "it said that it takes fp64";
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("it does not take these types"));
  }
}

// In C++ the host's failure is an exception from inside the plugin, through its own runtime.
TEST_P(ShelfRow, SaysThatAServiceOfTheHostFailed) {
  const plugin::Plugin& plugin = steady_of(GetParam());
  const kit::FailingHost host(kit::FailingHost::Service::kParallelFor);
  const plugin::ParamSet params = plugin::parse_params(plugin, {}, {});
  kit::CallOutcome outcome;
  const kit::PluginObject made(plugin, params.view(), host.table(), outcome);
  ASSERT_TRUE(outcome.ok()) << outcome.message;
  alignas(64) float param[8] = {}, grad[8] = {1}, velocity[8] = {};
  double mean = 0, sums = 1;
  void* states[] = {velocity, &mean};
  gannet_segment part{};
  part.struct_size = sizeof(part);
  part.numel = 8;
  gannet_update_args args{};
  args.struct_size = sizeof(args);
  args.param_dtype = args.grad_dtype = GANNET_FLOAT32;
  args.numel = 8;
  args.param = param;
  args.grad = grad;
  args.states = states;
  args.state_count = 2;
  args.grad_scale = args.step = 1;
  args.hyper = params.dynamic_values().data();
  args.hyper_count = params.dynamic_values().size();
  args.segments = &part;
  args.segment_count = 1;
  args.segment_stride = sizeof(part);
  args.sums = &sums;
  args.sum_count = 1;
  const auto* api = static_cast<const gannet_optimizer_api*>(plugin.descriptor->api);
  outcome = kit::call("update", plugin, api->update, made.self(), &args);
  EXPECT_GT(host.failures(), 0u);
  EXPECT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.message, "the host's parallel loop could not be run");
}

INSTANTIATE_TEST_SUITE_P(Shelf, ShelfRow, testing::ValuesIn(all_rows()), [](const auto& info) { return info.param.name; });

// Several files in threads of one process.
TEST(Shelf, RowsThatTrainAtOnceDoNotDisturbOneAnother) {
  const std::vector<Row> rows = present_rows();
  ASSERT_GE(rows.size(), 2u);
  const kit::Problem problem = kit::many_shapes({});
  std::vector<kit::TrainingResult> found(rows.size());
  constexpr size_t kThreads = kit::kPlaces - 1;
  for (size_t first = 0; first < rows.size(); first += kThreads) {
    std::vector<std::thread> threads;
    for (size_t r = first; r < std::min(first + kThreads, rows.size()); ++r)
      threads.emplace_back([&, r] {
        kit::use_place(r - first + 1);
        kit::Subject subject;
        subject.plugin = &steady_of(rows[r]);
        try {
          found[r] = kit::train(subject, problem, kit::uncut(problem, {}), {.steps = 40});
        } catch (const kit::CheckFailure&) {  // then it has no parameters, which differ
        }
      });
    for (auto& thread : threads) thread.join();
  }
  ASSERT_FALSE(found[0].params.empty());
  for (size_t r = 1; r < rows.size(); ++r) EXPECT_TRUE(found[r].params == found[0].params) << rows[r].name;
}

// With all of them loaded, the process still has one C++ library: a symbol of a plugin, or of a library that only a plugin needs,
// that were found here could take the place of another plugin's.
TEST(Shelf, NoSymbolLeavesItsPlugin) {
  bool has_libcxx = false;
  for (const Row& row : present_rows()) {
    steady_of(row);
    has_libcxx = has_libcxx || row.name == "clang_libcxx";
  }
  EXPECT_EQ(dlsym(RTLD_DEFAULT, GANNET_EXPORT_NAME), nullptr);
  // std::__1::basic_string<char>::append(char const*, unsigned long)
  constexpr const char* kAppend = "_ZNSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEE6appendEPKcm";
  EXPECT_EQ(dlsym(RTLD_DEFAULT, kAppend), nullptr);
  if (has_libcxx) {  // it is in the process, and the name is its name
    void* library = dlopen("libc++.so.1", RTLD_NOW | RTLD_NOLOAD | RTLD_LOCAL);
    ASSERT_NE(library, nullptr);
    EXPECT_NE(dlsym(library, kAppend), nullptr);
    dlclose(library);
  }
}

TEST(Shelf, AFileThatExportsItsCppLibraryIsRefused) {
  try {
    open_file(SHELF_LEAKY);
    FAIL() << "it was opened";
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("exports more than gannet_plugins_v2"));
  }
}

// Files that were built with earlier minors of the ABI, and what they did then (kept/README.md).
TEST(Kept, BinariesOfEachMinorDoWhatTheyDidWhenTheyWereMade) {
#ifndef __x86_64__
  GTEST_SKIP() << "the files are for x86-64";
#endif
  int count = 0;
  for (const auto& folder : std::filesystem::directory_iterator(SHELF_KEPT)) {
    if (!folder.is_directory()) continue;
    ++count;
    std::string found;
    for (const char* name :
         {"drawn.so", "listed.so", "passes.so", "polyak.so", "ramp.so", "steady.so"})  // none uses what came after its minor
      if (std::filesystem::exists(folder.path() / name))
        for (const plugin::Plugin* plugin : open_file((folder.path() / name).string()))
          found += std::string(name) + ' ' + probe(*plugin) + '\n';
    std::ifstream file(folder.path() / "expected.txt");
    const std::string expected((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    EXPECT_EQ(found, expected) << folder.path();
  }
  EXPECT_EQ(count, GANNET_ABI_MINOR + 1) << "a folder for each minor: run tests/sdk/kept/make.sh";
}

}  // namespace
}  // namespace gannet::sdk_tests
