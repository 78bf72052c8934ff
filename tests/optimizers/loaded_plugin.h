// A plugin's file opened through only the C contract, without the core's loader: used by the
// optimizers' and schedules' own tests and benchmarks.
//
//   LoadedPlugin adam("optimizer_adam", "AdamW");
//   auto object = OptimizerUnderTest(adam, gannet::Dict{{"lr", 1e-2}});
#pragma once

#include <dlfcn.h>
#include <gannet/abi.h>
#include <gannet/value.h>

#include <cstdlib>
#include <deque>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/parallel.h"

namespace gannet::test {

// The build's folder, unless the tests were carried to another machine (scripts/gpu).
inline std::string binary_folder() {
  const char* carried = std::getenv("GANNET_TEST_BINARY_DIR");
  return carried ? carried : GANNET_BINARY_DIR;
}

struct LoadedPlugin {
  const gannet_descriptor* descriptor = nullptr;

  LoadedPlugin(const std::string& file, const std::string& name) {
    const bool is_path = file.find('/') != std::string::npos;
    const std::string path = is_path ? file : binary_folder() + "/lib/gannet/gannet_" + file + ".so";
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle) throw std::runtime_error(dlerror());
    auto* table = static_cast<const gannet_descriptor* const*>(dlsym(handle, "gannet_plugins_v2"));
    for (; table && *table; ++table)
      if (name == (*table)->name) descriptor = *table;
    if (!descriptor) throw std::runtime_error(path + " does not provide " + name);
  }
  template <class Api>
  const Api& api() const {
    return *static_cast<const Api*>(descriptor->api);
  }
};

// Reads "0.1", "true", "\"log\"", "[0.9, 0.999]": what the schemas' defaults are made of.
inline Value parse_default(const std::string& json) {
  if (json == "true" || json == "false") return Value(json == "true");
  if (json[0] == '"') return Value(json.substr(1, json.size() - 2));
  if (json[0] != '[') return Value(std::stod(json));
  List list;
  for (size_t at = 1; at < json.size(); at = json.find_first_of(",]", at) + 1) list.push_back(Value(std::stod(json.substr(at))));
  return Value(std::move(list));
}

// The values of a plugin's schema: `given`, else the defaults. No checks: those are the loader's.
class ParamValues {
 public:
  ParamValues(const gannet_descriptor& descriptor, const Dict& given) {
    for (uint64_t i = 0; i < descriptor.param_count; ++i) {
      const gannet_param_spec& spec = descriptor.params[i];
      gannet_param_value value{};
      value.struct_size = sizeof(value);
      value.type = spec.type;
      value.name = spec.name;
      const Value* found = given.find(spec.name);
      value.is_given = found != nullptr;
      if (found && !found->is_null()) set(value, *found);
      if (!found && spec.default_json) set(value, parse_default(spec.default_json));
      if (spec.flags & GANNET_PARAM_DYNAMIC) {
        if (spec.type == GANNET_PARAM_FLOAT) hyper.push_back(value.number);
        for (uint64_t k = 0; k < value.list_count; ++k) hyper.push_back(value.list[k]);
      }
      values_.push_back(value);
    }
    for (const auto& [name, value] : given.entries()) {
      bool known = false;
      for (auto& declared : values_) known = known || name == declared.name;
      if (!known) throw std::runtime_error("the test gives '" + name + "', which the plugin does not declare");
    }
    view = {sizeof(gannet_params), 0, values_.data(), values_.size(), sizeof(gannet_param_value)};
  }
  ParamValues(const ParamValues&) = delete;

  gannet_params view;
  std::vector<double> hyper;  // the dynamic ones, flattened

 private:
  void set(gannet_param_value& to, const Value& from) {
    to.is_set = 1;
    if (to.type == GANNET_PARAM_BOOL) to.integer = from.as_bool();
    if (to.type == GANNET_PARAM_INT || to.type == GANNET_PARAM_FLOAT) to.number = from.as_number();
    if (to.type == GANNET_PARAM_INT) to.integer = static_cast<int64_t>(from.as_number());
    if (to.type == GANNET_PARAM_STRING) to.string = texts_.emplace_back(from.as_string()).c_str();
    if (to.type == GANNET_PARAM_FLOAT_LIST) {
      auto& list = lists_.emplace_back();
      if (from.is_number()) list.push_back(from.as_number());
      if (from.is_list())
        for (auto& element : from.as_list()) list.push_back(element.as_number());
      to.list = list.data();
      to.list_count = list.size();
    }
  }

  std::vector<gannet_param_value> values_;
  std::deque<std::string> texts_;
  std::deque<std::vector<double>> lists_;
};

// A host that keeps what is logged. `pieces` 0: the core's own parallel loop; else that many chunks, one after the other,
// as so many threads would have them.
struct TestHost {
  gannet_host table{};
  std::vector<std::string> logged;
  uint64_t pieces = 0;

  TestHost() {
    table.struct_size = sizeof(table);
    table.abi_major = GANNET_ABI_MAJOR;
    table.context = this;
    table.metric = [](void*, const char*, double, gannet_error*) -> int32_t { return GANNET_OK; };
    table.log = [](void* self, int32_t, const char* text) { static_cast<TestHost*>(self)->logged.emplace_back(text); };
    table.parallel_for = [](void* self, uint64_t begin, uint64_t end, uint64_t grain, gannet_loop_body body,
                            void* argument) -> int32_t {
      const uint64_t pieces = static_cast<TestHost*>(self)->pieces;
      if (pieces == 0) return parallel_for(begin, end, grain, body, argument);
      const uint64_t step = ((end - begin) / pieces / grain + 1) * grain;
      for (; begin < end; begin += step)
        if (int32_t status = body(argument, begin, begin + step < end ? begin + step : end)) return status;
      return GANNET_OK;
    };
    table.thread_count = [](void*) { return parallel_thread_count(); };
  }
  TestHost(const TestHost&) = delete;
};

struct ErrorText {
  char text[1024] = {};
  gannet_error error{sizeof(gannet_error), 0, sizeof(text), text};
  void raise_unless_ok(int32_t status) const {
    if (status != GANNET_OK) throw std::runtime_error(text);
  }
};

class OptimizerUnderTest {
 public:
  OptimizerUnderTest(const LoadedPlugin& plugin, const Dict& given, TestHost& host)
      : params(*plugin.descriptor, given), api(plugin.api<gannet_optimizer_api>()) {
    ErrorText error;
    error.raise_unless_ok(api.create(&host.table, &params.view, &self_, &error.error));
  }
  ~OptimizerUnderTest() {
    if (self_) api.destroy(self_);
  }
  OptimizerUnderTest(const OptimizerUnderTest&) = delete;

  // The object is for no tensors: an empty context.
  std::vector<std::string> states() const {
    gannet_optimizer_context context{};
    context.struct_size = sizeof(context);
    context.group_count = context.world_size = 1;
    const gannet_optimizer_description found = describe(context);
    std::vector<std::string> names;
    for (uint64_t i = 0; i < found.state_count; ++i) names.emplace_back(found.states[i].name);
    return names;
  }
  gannet_optimizer_description describe(const gannet_optimizer_context& context) const {
    gannet_optimizer_description found{};
    found.struct_size = sizeof(found);
    ErrorText error;
    error.raise_unless_ok(api.describe(self_, &context, &found, &error.error));
    return found;
  }
  bool supports(uint32_t param, uint32_t grad, uint32_t out) const {
    ErrorText error;
    return api.supports(self_, param, grad, out, &error.error) == GANNET_OK;
  }
  void update(const gannet_update_args& args) const {
    ErrorText error;
    error.raise_unless_ok(api.update(self_, &args, &error.error));
  }
  void sums(const gannet_update_args& args, uint32_t round, double* sums) const {
    ErrorText error;
    error.raise_unless_ok(api.sums(self_, &args, round, sums, &error.error));
  }
  void begin_step(const gannet_step_args& args) const {
    ErrorText error;
    if (api.begin_step) error.raise_unless_ok(api.begin_step(self_, &args, &error.error));
  }
  void end_step(const gannet_step_args& args) const {
    ErrorText error;
    if (api.end_step) error.raise_unless_ok(api.end_step(self_, &args, &error.error));
  }

  ParamValues params;
  const gannet_optimizer_api& api;

 private:
  void* self_ = nullptr;
};

}  // namespace gannet::test
