// A compiled graph: slots of values, and where each value ends.
#include "program.h"

#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "run.h"

namespace {

using gannet::exported::Program;
using gannet::exported::Step;
using testing::ElementsAre;
using testing::IsEmpty;

Program compiled(const std::string& nodes, const std::string& output) {
  return Program(
      gannet::exported::read_graph(
          R"({"format": 1, "exported_by": {"gannet_export": "0", "torch": "0"}, "mode": "train", "dtype": "fp32", "symbols": [],
 "inputs": [{"name": "x", "dtype": "float32", "shape": [4]}], "relations": [], "placeholders": [["input", "x"]],
 "graphs": [{"name": "main", "inputs": ["x"], "nodes": [)" +
              nodes + R"(], "outputs": [{"ref": ")" + output + R"("}]}]})",
          "g.json"),
      {});
}

TEST(Program, FreesEachValueAfterItsLastUse) {
  const Program program = compiled(R"(
    {"name": "a", "op": "aten.neg.default", "args": [{"ref": "x"}]},
    {"name": "b", "op": "aten.exp.default", "args": [{"ref": "a"}]},
    {"name": "unused", "op": "aten.exp.default", "args": [{"ref": "b"}]},
    {"name": "c", "op": "aten.add.Tensor", "args": [{"ref": "a"}, {"ref": "b"}]},
    {"name": "d", "op": "aten.sum.default", "args": [{"ref": "c"}]})",
                                   "d");
  const auto& steps = program.routines()[0].steps;  // slots: x 0, a 1, b 2, unused 3, c 4, d 5
  ASSERT_EQ(steps.size(), 5u);
  EXPECT_THAT(steps[0].ends, ElementsAre(0));
  EXPECT_THAT(steps[1].ends, IsEmpty());
  EXPECT_THAT(steps[2].ends, ElementsAre(3));
  EXPECT_THAT(steps[3].ends, ElementsAre(1, 2));
  EXPECT_THAT(steps[4].ends, ElementsAre(4)) << "the output ends with the call";
}

TEST(Program, TakesResultsApartWithoutAStep) {
  const Program program = compiled(R"(
    {"name": "both", "op": "aten.sort.default", "args": [{"ref": "x"}]},
    {"name": "places", "op": "getitem", "args": [{"ref": "both"}, 1]},
    {"name": "total", "op": "aten.sum.default", "args": [{"ref": "places"}]})",
                                   "total");
  EXPECT_EQ(program.routines()[0].steps.size(), 2u);
  const at::Tensor places = gannet::exported::run(program, {torch::tensor({3.f, 1.f, 2.f, 0.f})}, at::kCPU);
  EXPECT_EQ(places.item<int64_t>(), 6);
}

TEST(Program, TakesListsApartByIndex) {
  const Program program = compiled(R"(
    {"name": "parts", "op": "aten.split.Tensor", "args": [{"ref": "x"}, 2]},
    {"name": "last", "op": "getitem", "args": [{"ref": "parts"}, -1]},
    {"name": "total", "op": "aten.sum.default", "args": [{"ref": "last"}]})",
                                   "total");
  EXPECT_EQ(gannet::exported::run(program, {torch::tensor({1.f, 2.f, 3.f, 4.f})}, at::kCPU).item<float>(), 7);
}

// A number that is computed stands for a tensor as a Python number does: it does not widen the tensor's dtype.
TEST(Program, TakesComputedNumbersForTensors) {
  const Program program = compiled(R"(
    {"name": "n", "op": "py.numel", "args": [{"ref": "x"}]},
    {"name": "half", "op": "py.truediv", "args": [{"ref": "n"}, 8]},
    {"name": "scaled", "op": "aten.mul.Tensor", "args": [{"ref": "x"}, {"ref": "half"}]},
    {"name": "total", "op": "aten.sum.default", "args": [{"ref": "scaled"}]})",
                                   "total");
  const at::Tensor total = gannet::exported::run(program, {torch::ones({4}, at::kBFloat16)}, at::kCPU);
  EXPECT_EQ(total.scalar_type(), at::kBFloat16);
  EXPECT_EQ(total.item<float>(), 2);
}

// Later calls use the memory of a call's values again, and not the values.
TEST(Program, KeepsNoValueOfACall) {
  const Program program = compiled(R"(
    {"name": "a", "op": "aten.neg.default", "args": [{"ref": "x"}]},
    {"name": "square", "op": "aten.view.default", "args": [{"ref": "a"}, [2, 2]]},
    {"name": "b", "op": "aten.sum.dim_IntList", "args": [{"ref": "square"}, [0, 1]]},
    {"name": "c", "op": "aten.mul.Tensor", "args": [{"ref": "x"}, {"ref": "b"}]},
    {"name": "total", "op": "aten.sum.default", "args": [{"ref": "c"}]})",
                                   "total");
  for (const int64_t size : {4, 3, 4, 3}) {
    const at::Tensor x = torch::ones({size});
    if (size == 4)
      EXPECT_EQ(gannet::exported::run(program, {x}, at::kCPU).item<float>(), -16);
    else
      EXPECT_THROW(gannet::exported::run(program, {x}, at::kCPU), gannet::Error) << "view fails, and x is still needed";
    EXPECT_EQ(x.use_count(), 1u);
  }
}

}  // namespace
