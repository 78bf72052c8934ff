// Layers of hand-written graphs: what a cut may not part, what crosses one, and graphs at the edge of what has layers.
#include "flow.h"

#include <gannet/checkpointing.h>
#include <gannet/error.h>
#include <gannet/exported.h>
#include <gannet/pipe.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cuts.h"
#include "program.h"
#include "segments.h"

namespace flow_tests {
namespace {

using gannet::ExportedConfig;
using gannet::ExportedModule;
using gannet::ExportedTensor;
using gannet::NamedBatch;
using gannet::Wire;
using gannet::exported::Cuts;
using gannet::exported::Flow;
using gannet::exported::Program;
using gannet::exported::Segments;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string node(const std::string& name, const std::string& op, const std::string& args, const std::string& layer) {
  return R"({"name": ")" + name + R"(", "op": ")" + op + R"(", "args": [)" + args + R"(], "layer": ")" + layer + R"("})";
}
std::string ref(const std::string& name) { return R"({"ref": ")" + name + R"("})"; }

// A model of a hand-written graph. Its inputs are x of [s0, 4] and, where the graph has a second one, y of [s0, 4]; its weights
// are "net.0.w", "net.1.w" ... of [4], and those of `more`.
struct Written {
  std::vector<std::string> weights;
  std::vector<std::string> nodes;
  std::string output;
  std::vector<ExportedTensor> buffers = {};
  std::vector<std::string> inputs = {"x"};
  std::string shape = R"(["s0", 4])";

  std::string text() const {
    std::string placeholders, names, body, given;
    const auto add = [&](const char* kind, const std::string& target) {
      placeholders += std::string(placeholders.empty() ? "" : ", ") + "[\"" + kind + "\", \"" + target + "\"]";
      names += std::string(names.empty() ? "\"" : ", \"") + (kind == std::string("input") ? target : name_of(target)) + "\"";
    };
    for (const std::string& one : weights) add("parameter", one);
    for (const ExportedTensor& one : buffers) add("buffer", one.name);
    for (const std::string& one : inputs) {
      add("input", one);
      given +=
          std::string(given.empty() ? "" : ", ") + R"({"name": ")" + one + R"(", "dtype": "float32", "shape": )" + shape + "}";
    }
    for (const std::string& one : nodes) body += (body.empty() ? "" : ",\n") + one;
    const bool has_symbol = shape.find("s0") != std::string::npos;
    return R"({"format": 1, "exported_by": {"gannet_export": "0", "torch": "0"}, "mode": "train", "dtype": "fp32", "symbols": [)" +
           std::string(has_symbol ? R"({"name": "s0", "min": 2, "max": null})" : "") + R"(], "inputs": [)" + given +
           R"(], "relations": [], "placeholders": [)" + placeholders + R"(], "graphs": [{"name": "main", "inputs": [)" + names +
           R"(], "nodes": [)" + body + R"(], "outputs": [)" + ref(output) + "]}]}";
  }
  // "net.0.w" is the value w0 of the graph.
  static std::string name_of(const std::string& target) {
    std::string name;
    for (const char c : target)
      if (c != '.') name += c;
    return name;
  }
  std::shared_ptr<Program> program() const {
    return std::make_shared<Program>(gannet::exported::read_graph(text(), "g.json"), std::map<std::string, at::Tensor>());
  }
  std::shared_ptr<ExportedModule> model() const {
    ExportedConfig config;
    config.folder = "written";
    for (const std::string& name : weights) config.parameters.push_back({name, {4}, true, "float32"});
    config.buffers = buffers;
    config.programs.push_back(program());
    const auto made = std::make_shared<ExportedModule>(config);
    const torch::NoGradGuard guard;
    double value = 0.5;
    for (auto& parameter : made->parameters()) parameter.copy_(torch::arange(4, at::kFloat) * 0.25 + (value += 0.125));
    return made;
  }
};

std::vector<std::string> names_of(const std::vector<gannet::Layer>& layers) {
  std::vector<std::string> names;
  for (const auto& one : layers) names.push_back(one.name());
  return names;
}

struct Result {
  at::Tensor loss;
  std::map<std::string, at::Tensor> gradients, buffers;
};

Result result_of(const ExportedModule& model, const at::Tensor& loss) {
  Result found{loss.detach().clone(), {}, {}};
  loss.backward();
  for (const auto& entry : model.named_parameters())
    if (entry.value().grad().defined()) found.gradients[entry.key()] = entry.value().grad();
  for (const auto& entry : model.named_buffers()) found.buffers[entry.key()] = entry.value().clone();
  return found;
}

// The model's layers, each of them a region of activation checkpointing, compute what the whole graph computes.
void expect_layers_as_whole(const Written& written, const NamedBatch& batch) {
  const auto whole = written.model(), parts = written.model();
  torch::manual_seed(5);
  const Result wanted = result_of(*whole, whole->forward(batch));
  for (const bool recomputes : {false, true}) {
    SCOPED_TRACE(recomputes ? "recomputed" : "once");
    const auto model = written.model();
    const gannet::pipe::MicroBatch micro_batch = model->micro_batch(batch);
    Wire wire = micro_batch.inputs;
    torch::manual_seed(5);
    for (const gannet::Layer& layer : model->layers())
      wire = recomputes ? gannet::checkpointing::checkpoint([layer](const Wire& in) { return layer(in); }, wire) : layer(wire);
    wire.insert(wire.end(), micro_batch.labels.begin(), micro_batch.labels.end());
    const Result found = result_of(*model, model->pipeline_loss(wire));
    EXPECT_TRUE(at::equal(found.loss, wanted.loss)) << found.loss << wanted.loss;
    ASSERT_EQ(found.gradients.size(), wanted.gradients.size());
    for (const auto& [name, gradient] : wanted.gradients) EXPECT_TRUE(at::equal(found.gradients.at(name), gradient)) << name;
    if (!recomputes)
      for (const auto& [name, buffer] : wanted.buffers) EXPECT_TRUE(at::equal(found.buffers.at(name), buffer)) << name;
  }
}

NamedBatch batch_of(int64_t rows = 3) {
  torch::manual_seed(1);
  return {{"x", torch::randn({rows, 4})}};
}

std::vector<size_t> cuts_that_are_possible(const Flow& flow) {
  std::vector<size_t> found;
  for (size_t cut = 0; cut < flow.may_cut.size(); ++cut)
    if (flow.may_cut[cut]) found.push_back(cut);
  return found;
}

// The second layer writes into a value of the first, through a view of it: the two are one.
Written with_late_write() {
  return {
      {"net.0.w", "net.1.w", "net.2.w"},
      {node("h", "aten.mul.Tensor", ref("x") + ", " + ref("net0w"), "net.0"),
       node("v", "aten.transpose.int", ref("h") + ", 0, 1", "net.0"),
       node("y", "aten.add.Tensor", ref("h") + ", " + ref("net1w"), "net.1"),
       node("late", "aten.add_.Tensor", ref("v") + ", 1.5", "net.1"),
       node("z", "aten.mul.Tensor", ref("h") + ", " + ref("net2w"), "net.2"),
       node("all", "aten.add.Tensor", ref("y") + ", " + ref("z"), "net.2"), node("total", "aten.sum.default", ref("all"), "")},
      "total"};
}

TEST(ExportedFlow, PartsNoValueFromTheWritesIntoIt) {
  const Written written = with_late_write();
  const Flow flow(*written.program());
  EXPECT_THAT(cuts_that_are_possible(flow), ElementsAre(0, 4, 5, 6, 7)) << "the last write is step 3";
  EXPECT_THAT(names_of(written.model()->layers()), ElementsAre("net.0", "net.2"));
  expect_layers_as_whole(written, batch_of());
}

// So it is with a value that is written where it was made, and read later.
TEST(ExportedFlow, CutsAfterTheLastWriteIntoAValue) {
  const Written written = {
      {"net.0.w", "net.1.w"},
      {node("h", "aten.mul.Tensor", ref("x") + ", " + ref("net0w"), "net.0"), node("r", "aten.relu_.default", ref("h"), "net.0"),
       node("y", "aten.mul.Tensor", ref("h") + ", " + ref("net1w"), "net.1"), node("total", "aten.sum.default", ref("y"), "")},
      "total"};
  EXPECT_THAT(cuts_that_are_possible(Flow(*written.program())), ElementsAre(0, 2, 3, 4));
  EXPECT_THAT(names_of(written.model()->layers()), ElementsAre("net.0", "net.1"));
  expect_layers_as_whole(written, batch_of());
}

// Values of inputs alone are made again in each layer, with the writes into them.
TEST(ExportedFlow, RepeatsTheWritesIntoValuesOfInputs) {
  const Written written = {
      {"net.0.w", "net.1.w"},
      {node("m", "aten.mul.Tensor", ref("x") + ", 2.0", ""), node("f", "aten.add_.Tensor", ref("m") + ", 3.0", ""),
       node("h", "aten.mul.Tensor", ref("m") + ", " + ref("net0w"), "net.0"),
       node("y", "aten.mul.Tensor", ref("h") + ", " + ref("net1w"), "net.1"),
       node("z", "aten.mul.Tensor", ref("y") + ", " + ref("m"), "net.1"), node("total", "aten.sum.default", ref("z"), "")},
      "total"};
  const auto program = written.program();
  const Flow flow(*program);
  EXPECT_THAT(flow.is_fixed, ElementsAre(false, false, true, true, true, true));
  EXPECT_THAT(flow.with_free_steps({3, 4}, {}), ElementsAre(0, 1, 3, 4));
  EXPECT_THAT(names_of(written.model()->layers()), ElementsAre("net.0", "net.1"));
  expect_layers_as_whole(written, batch_of());
}

// Sizes of a value that depends on a weight: an integer and a float pass the cut, as tensors without dimensions.
TEST(ExportedFlow, PassesNumbersAcrossACut) {
  const Written written = {
      {"net.0.w", "net.1.w"},
      {node("h", "aten.mul.Tensor", ref("x") + ", " + ref("net0w"), "net.0"), node("n", "py.size", ref("h") + ", 0", "net.0"),
       node("q", "py.truediv", ref("n") + ", 4", "net.0"), node("flat", "aten.view.default", ref("h") + ", [-1]", "net.0"),
       node("back", "aten.view.default", ref("flat") + ", [" + ref("n") + ", -1]", "net.1"),
       node("y", "aten.mul.Tensor", ref("back") + ", " + ref("net1w"), "net.1"),
       node("s", "aten.mul.Tensor", ref("y") + ", " + ref("q"), "net.1"), node("total", "aten.sum.default", ref("s"), "")},
      "total"};
  const auto program = written.program();
  const Flow flow(*program);
  const Cuts cuts = gannet::exported::cuts_of(*program, flow);
  ASSERT_EQ(cuts.layers.size(), 2u);
  EXPECT_EQ(cuts.layers[1].step, 4u);
  EXPECT_EQ(flow.crossings[4], 3u);
  const Segments segments =
      gannet::exported::segments_of(*program, flow, cuts, gannet::exported::inputs_needed(*program, flow, cuts));
  EXPECT_THAT(segments.layers[1].is_number, ElementsAre(true, true, false));
  const auto model = written.model();
  const Wire wire = model->layers()[0](model->micro_batch(batch_of(3)).inputs);
  ASSERT_EQ(wire.size(), 3u);
  EXPECT_EQ(wire[0].scalar_type(), at::kLong);
  EXPECT_EQ(wire[0].item<int64_t>(), 3);
  EXPECT_EQ(wire[1].scalar_type(), at::kDouble);
  EXPECT_EQ(wire[1].item<double>(), 0.75);
  for (const int64_t rows : {2, 3, 7}) expect_layers_as_whole(written, batch_of(rows));
}

// The buffer is written in the first layer and read in the last.
TEST(ExportedFlow, HasOneLayerWhereNoCutIsPossible) {
  const Written written = {{"net.0.w", "net.1.w"},
                           {node("h", "aten.mul.Tensor", ref("x") + ", " + ref("net0w"), "net.0"),
                            node("count", "aten.add_.Tensor", ref("net0seen") + ", 1.0", "net.0"),
                            node("y", "aten.mul.Tensor", ref("h") + ", " + ref("net1w"), "net.1"),
                            node("scaled", "aten.mul.Tensor", ref("y") + ", " + ref("count"), "net.1"),
                            node("total", "aten.sum.default", ref("scaled"), "")},
                           "total",
                           {{"net.0.seen", {}, false, "float32"}}};
  const auto model = written.model();
  EXPECT_THAT(names_of(model->layers()), ElementsAre("net.0"));
  try {
    model->pipeline_layers();
    FAIL() << "nothing was thrown";
  } catch (const gannet::Error& error) {
    EXPECT_EQ(error.code(), gannet::ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("written: the graph has no place for a cut between its layers"));
  }
}

// A list of tensors does not cross: it is taken apart in the layer that makes it.
TEST(ExportedFlow, PartsNoListFromWhatTakesItApart) {
  const Written written = {
      {"net.0.w", "net.1.w"},
      {node("h", "aten.mul.Tensor", ref("x") + ", " + ref("net0w"), "net.0"),
       node("halves", "aten.split.Tensor", ref("h") + ", 2, 1", "net.0"), node("half", "getitem", ref("halves") + ", 1", "net.1"),
       node("s", "aten.sum.default", ref("net1w"), "net.1"), node("y", "aten.mul.Tensor", ref("half") + ", " + ref("s"), "net.1"),
       node("total", "aten.sum.default", ref("y"), "")},
      "total"};
  EXPECT_THAT(cuts_that_are_possible(Flow(*written.program())), ElementsAre(0, 1, 3, 4, 5, 6));
  EXPECT_THAT(names_of(written.model()->layers()), ElementsAre("net.0"));
  expect_layers_as_whole(written, batch_of());
}

// Between the last step of a layer and the first of the next: of two equally good cuts the later one.
TEST(ExportedFlow, CutsWhereFewestValuesCross) {
  const Written written = {
      {"net.0.w", "net.1.w"},
      {node("h", "aten.mul.Tensor", ref("x") + ", " + ref("net0w"), "net.0"), node("a", "aten.neg.default", ref("h"), ""),
       node("b", "aten.exp.default", ref("h"), ""), node("c", "aten.add.Tensor", ref("a") + ", " + ref("b"), ""),
       node("y", "aten.mul.Tensor", ref("c") + ", " + ref("net1w"), "net.1"), node("total", "aten.sum.default", ref("y"), "")},
      "total"};
  const auto program = written.program();
  const Flow flow(*program);
  EXPECT_THAT(flow.crossings, ElementsAre(0, 1, 2, 2, 1, 1, 1));
  const Cuts cuts = gannet::exported::cuts_of(*program, flow);
  ASSERT_EQ(cuts.layers.size(), 2u);
  EXPECT_EQ(cuts.layers[1].step, 4u);
  EXPECT_EQ(cuts.loss, 5u);
  expect_layers_as_whole(written, batch_of());
}

// A check of sizes has no result that anything uses, and runs in the layers, too.
TEST(ExportedFlow, RunsChecksOfSizesInTheLayers) {
  const Written written = {
      {"net.0.w", "net.1.w"},
      {node("n", "py.size", ref("x") + ", 0", ""), node("few", "py.le", ref("n") + ", 5", ""),
       node("check", "py.assert", ref("few"), ""), node("h", "aten.mul.Tensor", ref("x") + ", " + ref("net0w"), "net.0"),
       node("y", "aten.mul.Tensor", ref("h") + ", " + ref("net1w"), "net.1"), node("total", "aten.sum.default", ref("y"), "")},
      "total"};
  expect_layers_as_whole(written, batch_of(5));
  const auto model = written.model();
  EXPECT_THROW(model->forward(batch_of(6)), gannet::Error);
  EXPECT_THROW(gannet::detail::run_layers(model->layers(), model->micro_batch(batch_of(6)).inputs), gannet::Error);
}

TEST(ExportedFlow, RunsAGraphWhoseOutputIsItsInput) {
  const Written written = {{"net.0.w"}, {node("h", "aten.mul.Tensor", ref("x") + ", " + ref("net0w"), "net.0")}, "x", {}, {"x"},
                           "[]"};
  const auto model = written.model();
  const NamedBatch batch = {{"x", torch::tensor(2.5f)}};
  {
    const torch::NoGradGuard guard;
    EXPECT_EQ(model->forward(batch).item<float>(), 2.5f);
    const gannet::pipe::MicroBatch micro_batch = model->micro_batch(batch);
    ASSERT_EQ(micro_batch.labels.size(), 1u);
    Wire wire = gannet::detail::run_layers(model->layers(), micro_batch.inputs);
    wire.insert(wire.end(), micro_batch.labels.begin(), micro_batch.labels.end());
    EXPECT_EQ(model->pipeline_loss(wire).item<float>(), 2.5f);
  }
  try {
    model->forward(batch);
    FAIL() << "nothing was thrown";
  } catch (const gannet::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the loss has no gradient"));
  }
}

// An input that no node uses is checked, and given to no layer; a weight that no node uses has no gradient.
TEST(ExportedFlow, GivesLayersTheInputsThatTheyUse) {
  const Written written = {
      {"net.0.w", "net.1.w", "net.1.idle"},
      {node("h", "aten.mul.Tensor", ref("x") + ", " + ref("net0w"), "net.0"),
       node("y", "aten.mul.Tensor", ref("h") + ", " + ref("net1w"), "net.1"),
       node("d", "aten.sub.Tensor", ref("y") + ", " + ref("target"), ""), node("total", "aten.sum.default", ref("d"), "")},
      "total",
      {},
      {"x", "unused", "target"}};
  const auto model = written.model();
  const NamedBatch batch = {{"x", torch::ones({2, 4})}, {"unused", torch::zeros({2, 4})}, {"target", torch::full({2, 4}, 2.f)}};
  const gannet::pipe::MicroBatch micro_batch = model->micro_batch(batch);
  ASSERT_EQ(micro_batch.inputs.size(), 1u);
  EXPECT_TRUE(micro_batch.inputs[0].is_same(batch.at("x")));
  ASSERT_EQ(micro_batch.labels.size(), 1u);
  EXPECT_TRUE(micro_batch.labels[0].is_same(batch.at("target")));
  NamedBatch without = batch;
  without.erase("unused");
  EXPECT_THROW(model->forward(without), gannet::Error);
  EXPECT_THROW(model->micro_batch(without), gannet::Error);
  expect_layers_as_whole(written, batch);
  const Result found = result_of(*model, model->forward(batch));
  EXPECT_TRUE(found.gradients.contains("net.1.w"));
  EXPECT_FALSE(found.gradients.contains("net.1.idle"));
}

TEST(ExportedFlow, GivesAWeightToEachLayerThatUsesIt) {
  const Written written = {
      {"net.0.w", "net.1.w"},
      {node("h", "aten.mul.Tensor", ref("x") + ", " + ref("net0w"), "net.0"),
       node("y", "aten.mul.Tensor", ref("h") + ", " + ref("net1w"), "net.1"),
       node("z", "aten.mul.Tensor", ref("y") + ", " + ref("net0w"), "net.2"), node("total", "aten.sum.default", ref("z"), "")},
      "total"};
  const auto program = written.program();
  const Flow flow(*program);
  const Cuts cuts = gannet::exported::cuts_of(*program, flow);
  const Segments segments =
      gannet::exported::segments_of(*program, flow, cuts, gannet::exported::inputs_needed(*program, flow, cuts));
  ASSERT_EQ(segments.layers.size(), 3u);
  EXPECT_THAT(segments.layers[0].tensors, ElementsAre("net.0.w"));
  EXPECT_THAT(segments.layers[1].tensors, ElementsAre("net.1.w"));
  EXPECT_THAT(segments.layers[2].tensors, ElementsAre("net.0.w"));
  EXPECT_THAT(segments.loss.tensors, IsEmpty());
  expect_layers_as_whole(written, batch_of());
  const auto model = written.model();
  const auto layers = model->layers();
  ASSERT_FALSE(layers[0].modules().empty());
  EXPECT_THAT(layers[2].modules(), testing::Contains(layers[0].modules()[0])) << "the pipeline sees that they share a module";
}

// Random numbers are drawn once and cross: a layer that needs them later does not draw others.
TEST(ExportedFlow, NeverDrawsRandomNumbersTwice) {
  const Written written = {
      {"net.0.w", "net.1.w"},
      {node("noise", "aten.rand_like.default", ref("x"), ""),
       node("h", "aten.mul.Tensor", ref("noise") + ", " + ref("net0w"), "net.0"),
       node("y", "aten.mul.Tensor", ref("h") + ", " + ref("net1w"), "net.1"),
       node("z", "aten.add.Tensor", ref("y") + ", " + ref("noise"), "net.1"), node("total", "aten.sum.default", ref("z"), "")},
      "total"};
  const Flow flow(*written.program());
  EXPECT_TRUE(flow.is_fixed[0]);
  EXPECT_EQ(flow.crossings[2], 2u);
  expect_layers_as_whole(written, batch_of());
}

}  // namespace
}  // namespace flow_tests
