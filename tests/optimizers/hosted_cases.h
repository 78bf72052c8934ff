// Groups of tensors for the optimizers that have kernels of their own for devices: for tests of those kernels on the host and on
// a GPU.
#pragma once

#include <memory>
#include <ostream>

#include "optimizers/group_case.h"

namespace gannet::test {

struct HostedCase {
  std::string name, folder, type;
  Dict params;
  bool has_double = true;
  // Whether a kernel gives the CPU's bits; else its sums have another order.
  bool is_exact = false;
  bool cuts_tensors = true;  // into several pieces
  uint64_t alignment = 1;

  bool takes(const Types& types) const { return has_double || types.param == GANNET_FLOAT32; }
  // More than one block of a sum, of columns and of rows; lengths that no width divides; stacks of matrices; one element.
  std::vector<GroupCase::Tensor> tensors() const {
    const bool is_muon = type == "Muon";  // whose products take the host long
    return {{"weight", is_muon ? std::vector<int64_t>{70, 83} : std::vector<int64_t>{173, 211}},
            {"bias", {173}},
            {"scale", {1}},
            {"experts", {3, 300, 5}},
            {"tall", {600, 3}},
            {"wide", {2, is_muon ? 700 : 4500}},
            {"embed", {31, 33}},
            {"head", {64}}};
  }
  std::unique_ptr<GroupCase> group(const LoadedPlugin& plugin, TestHost& host, Types types) const {
    return std::make_unique<GroupCase>(plugin, params, host, types, tensors(), 5, alignment);
  }
  // One piece in odd steps. In even ones several, whose borders are within tensors and at their ends, where that is allowed.
  std::vector<uint64_t> ends(const GroupCase& group, uint64_t step) const {
    if (step % 2 == 1) return {0, group.numel};
    const uint64_t second = group.tensors[1].offset;
    if (!cuts_tensors) return {0, second, group.tensors[4].offset, group.numel};
    std::vector<uint64_t> all = {0};
    for (const uint64_t end : {uint64_t{256}, uint64_t{16384 + 256}, second, group.tensors[5].offset + 2304, group.numel})
      all.push_back(end);
    return all;
  }
};
inline std::ostream& operator<<(std::ostream& out, const HostedCase& each) { return out << each.name; }

inline std::vector<HostedCase> hosted_cases() {
  const Dict common{{"lr", 0.01}, {"weight_decay", 0.1}};
  std::vector<HostedCase> all;
  all.push_back({"Lamb", "lamb", "Lamb", common});
  all.push_back({"LambInside", "lamb", "Lamb", Dict{{"eps", 1e-3}, {"eps_inside_sqrt", true}, {"bias_correction", false}}});
  all.push_back({.name = "AdamW8bit",
                 .folder = "adam8bit",
                 .type = "AdamW8bit",
                 .params = common,
                 .has_double = false,
                 .is_exact = true,
                 .alignment = 256});
  all.push_back({.name = "Adafactor", .folder = "adafactor", .type = "Adafactor", .params = {}, .has_double = false});
  all.push_back({.name = "AdafactorMomentum",
                 .folder = "adafactor",
                 .type = "Adafactor",
                 .params = Dict{{"lr", 3e-3}, {"beta1", 0.9}, {"weight_decay", 0.1}, {"clip_threshold", 0.5}},
                 .has_double = false});
  all.push_back({.name = "Muon", .folder = "muon", .type = "Muon", .params = common, .is_exact = true, .cuts_tensors = false});
  all.push_back({.name = "MuonStandard",
                 .folder = "muon",
                 .type = "Muon",
                 .params = Dict{{"ns_method", "standard"}, {"nesterov", false}, {"ns_steps", 3}},
                 .is_exact = true,
                 .cuts_tensors = false});
  return all;
}

inline std::string hosted_file(const HostedCase& each) {
  return binary_folder() + "/tests/plugins/gannet_test_hosted_" + each.folder + ".so";
}

}  // namespace gannet::test
