// The reader of graphs refuses what is wrong in a file, with the place; nothing of a graph is run before.
#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <iterator>
#include <random>

#include "exported/archive.h"
#include "graph.h"
#include "program.h"
#include "run.h"

namespace {

using gannet::ErrorCode;
using testing::AllOf;
using testing::HasSubstr;

// A graph that returns the sum of x, with other nodes, outputs, or members.
struct Text {
  std::string head =
      R"("format": 1, "exported_by": {"gannet_export": "0.1.0", "torch": "2.15.0"}, "mode": "train", "dtype": "fp32")";
  std::string symbols = R"([{"name": "s0", "min": 2, "max": null}])";
  std::string inputs = R"([{"name": "x", "dtype": "float32", "shape": ["s0", 3]}])";
  std::string relations = "[]";
  std::string placeholders = R"([["input", "x"]])";
  std::string before = "";  // graphs
  std::string main_inputs = R"(["x"])";
  std::string nodes = R"({"name": "total", "op": "aten.sum.default", "args": [{"ref": "x"}], "layer": "head"})";
  std::string outputs = R"([{"ref": "total"}])";
  std::string text() const {
    return "{" + head + R"(, "symbols": )" + symbols + R"(, "inputs": )" + inputs + R"(, "relations": )" + relations +
           R"(, "placeholders": )" + placeholders + R"(, "graphs": [)" + before + R"({"name": "main", "inputs": )" + main_inputs +
           R"(, "nodes": [)" + nodes + R"(], "outputs": )" + outputs + "}]}";
  }
};

struct Refusal {
  ErrorCode code = ErrorCode::kInternal;
  std::string what = "nothing was thrown";
};

Refusal refusal_of(const std::string& text) {
  try {
    gannet::exported::Program(gannet::exported::read_graph(text, "g.json"), {});
  } catch (const gannet::Error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

void expect_refused(const Text& text, ErrorCode code, const testing::Matcher<std::string>& what) {
  const Refusal found = refusal_of(text.text());
  EXPECT_THAT(found.what, what);
  EXPECT_EQ(found.code, code) << found.what;
}

at::Tensor result_of(const Text& text, std::vector<c10::IValue> inputs) {
  const gannet::exported::Program program(gannet::exported::read_graph(text.text(), "g.json"), {});
  return gannet::exported::run(program, std::move(inputs), at::kCPU);
}

std::string node(const std::string& op, const std::string& args, const std::string& more = "") {
  return R"({"name": "total", "op": ")" + op + R"(", "args": [)" + args + "]" + more + R"(, "layer": "head"})";
}

TEST(Graph, ThatIsRightRuns) {
  EXPECT_EQ(result_of({}, {torch::ones({2, 3})}).item<float>(), 6);
  EXPECT_EQ(refusal_of(Text().text()).what, "nothing was thrown");
}

TEST(Graph, OfAnotherFormatIsRefusedWithTheWayToExportIt) {
  Text text;
  text.head.replace(text.head.find(": 1"), 3, ": 2");
  expect_refused(text, ErrorCode::kUnsupported,
                 AllOf(HasSubstr("g.json: format 2, and this Gannet reads format 1"), HasSubstr("gannet_export 0.1.0 wrote it"),
                       HasSubstr("use a newer Gannet, or export")));
}

TEST(Graph, WithAnOperatorThatThisLibTorchLacksIsRefusedWithBothVersions) {
  expect_refused({.nodes = node("aten.add.OfTomorrow", R"({"ref": "x"})")}, ErrorCode::kUnsupported,
                 AllOf(HasSubstr("node 'total' of layer 'head': there is no operator aten.add.OfTomorrow"),
                       HasSubstr("PyTorch 2.15.0"), HasSubstr("this is LibTorch 2.")));
  expect_refused({.nodes = node("aten.sum.default", R"({"ref": "x"})", R"(, "kwargs": {"faster": true})")},
                 ErrorCode::kUnsupported, HasSubstr("the operator aten.sum.default has no argument 'faster'"));
  expect_refused({.nodes = node("aten.sum.default", R"({"ref": "x"}, null, 3, 4)")}, ErrorCode::kUnsupported,
                 HasSubstr("4 arguments for aten.sum.default"));
  expect_refused({.nodes = node("py.tomorrow", R"({"ref": "x"})")}, ErrorCode::kUnsupported, HasSubstr("'py.tomorrow'"));
  expect_refused({.nodes = node("nested.while", R"({"ref": "x"})")}, ErrorCode::kUnsupported, HasSubstr("'nested.while'"));
}

// Data must not act: these read or write files, exchange memory, or read past its end.
TEST(Graph, CallsNoOperatorThatActs) {
  for (const char* op :
       {"aten.from_file.default", "aten.set_.source_Tensor", "aten.resize_.default", "aten._unsafe_index.Tensor",
        "aten.requires_grad_.default", "aten.save.default", "aten._foobar.default", "aten.manual_seed.default"}) {
    SCOPED_TRACE(op);
    expect_refused({.nodes = node(op, R"("/etc/passwd")")}, ErrorCode::kUnsupported,
                   AnyOf(HasSubstr("is not among those that a graph may call"), HasSubstr("does not exist")));
  }
  expect_refused({.nodes = node("prim.print.default", R"({"ref": "x"})")}, ErrorCode::kUnsupported, HasSubstr("another library"));
  expect_refused({.nodes = node("aten.add.out", R"({"ref": "x"}, {"ref": "x"})", R"(, "kwargs": {"out": {"ref": "x"}})")},
                 ErrorCode::kCorrupt, HasSubstr("writes into a tensor that is given to it"));
  for (const char* op : {"sum", "aten.sum", "aten.sum.a.b", "", "."})
    expect_refused({.nodes = node(op, R"({"ref": "x"})")}, ErrorCode::kCorrupt, HasSubstr("is not an operator"));
}

TEST(Graph, WritesIntoNoParameterAndNoConstant) {
  Text text{.placeholders = R"([["parameter", "head.weight"]])", .nodes = node("aten.add_.Tensor", R"({"ref": "x"}, 1)")};
  expect_refused(text, ErrorCode::kUnsupported, HasSubstr("aten.add_.Tensor writes into the parameter 'head.weight'"));
  // A number that stands for a tensor is made once, for all calls.
  expect_refused({.nodes = node("aten.add_.Tensor", R"(1.0, {"ref": "x"})")}, ErrorCode::kCorrupt,
                 HasSubstr("writes into a number"));
}

// The parameter 'head.weight' is x; `steps` are before the node that writes.
Text writing(const std::string& steps, const std::string& op, const std::string& args, const std::string& before = "") {
  return {.placeholders = R"([["parameter", "head.weight"]])", .before = before, .nodes = steps + node(op, args)};
}

TEST(Graph, WritesIntoNoViewOfAParameter) {
  const auto refused = [](const Text& text) {
    expect_refused(text, ErrorCode::kUnsupported,
                   AllOf(HasSubstr("node 'total'"), HasSubstr("writes into the parameter 'head.weight'")));
  };
  const std::string row = R"({"name": "row", "op": "aten.select.int", "args": [{"ref": "x"}, 0, 0]}, )";
  refused(writing(row, "aten.zero_.default", R"({"ref": "row"})"));
  // A view of a view, and one of several.
  refused(writing(row + R"({"name": "part", "op": "aten.view.default", "args": [{"ref": "row"}, [3]]}, )", "aten.add_.Tensor",
                  R"({"ref": "part"}, 1)"));
  refused(writing(R"({"name": "parts", "op": "aten.unbind.int", "args": [{"ref": "x"}]},
                     {"name": "part", "op": "getitem", "args": [{"ref": "parts"}, 0]}, )",
                  "aten.mul_.Tensor", R"({"ref": "part"}, 2)"));
  // What an operator in place returns is what it was given.
  expect_refused(writing(R"({"name": "same", "op": "aten.relu_.default", "args": [{"ref": "x"}]}, )", "aten.sum.default",
                         R"({"ref": "same"})"),
                 ErrorCode::kUnsupported, HasSubstr("node 'same': aten.relu_.default writes into the parameter"));
  // Without a word of it in their schemas.
  refused(writing(R"({"name": "same", "op": "aten.dropout.default", "args": [{"ref": "x"}, 0.5, false]}, )", "aten.add_.Tensor",
                  R"({"ref": "same"}, 1)"));
  refused(writing(R"({"name": "same", "op": "aten.einsum.default", "args": ["ij->ji", [{"ref": "x"}]]}, )", "aten.add_.Tensor",
                  R"({"ref": "same"}, 1)"));
  const std::string statistics = R"({"ref": "y"}, null, null, {"ref": "x"}, null, )";
  Text norm = writing(R"({"name": "y", "op": "aten.neg.default", "args": [{"ref": "x"}]}, )", "aten.batch_norm.default",
                      statistics + "true, 0.1, 1e-05, false");
  refused(norm);
  norm = writing(R"({"name": "y", "op": "aten.neg.default", "args": [{"ref": "x"}]}, )", "aten.batch_norm.default",
                 statistics + "false, 0.1, 1e-05, false");
  EXPECT_EQ(refusal_of(norm.text()).what, "nothing was thrown") << "evaluated: it reads the statistics";
  // What was computed from a parameter is no view of it.
  const std::string computed = R"({"name": "y", "op": "aten.mul.Tensor", "args": [{"ref": "x"}, 2]}, )";
  EXPECT_EQ(refusal_of(writing(computed, "aten.add_.Tensor", R"({"ref": "y"}, 1)").text()).what, "nothing was thrown");
}

TEST(Graph, WritesIntoNoParameterInANestedGraph) {
  const auto graph = [](const std::string& name, const std::string& nodes, const std::string& output) {
    return R"({"name": ")" + name + R"(", "inputs": ["b", "a"], "nodes": [)" + nodes + R"(], "outputs": [{"ref": ")" + output +
           R"("}]}, )";
  };
  const std::string into_a = R"({"name": "v", "op": "aten.t.default", "args": [{"ref": "a"}]},
                                {"name": "w", "op": "aten.zero_.default", "args": [{"ref": "v"}]})";
  const std::string other = R"({"name": "y", "op": "aten.neg.default", "args": [{"ref": "x"}]}, )";
  const std::string call = R"(false, {"graph": "g"}, {"ref": "y"}, {"ref": "x"})";
  expect_refused(writing(other, "nested.grad_mode", call, graph("g", into_a, "w")), ErrorCode::kUnsupported,
                 HasSubstr("nested.grad_mode writes into the parameter 'head.weight'"));
  const std::string turned =
      R"({"name": "n", "op": "nested.grad_mode", "args": [false, {"graph": "g"}, {"ref": "x"}, {"ref": "y"}]}, )";
  EXPECT_EQ(refusal_of(writing(other + turned, "getitem", R"({"ref": "n"}, 0)", graph("g", into_a, "w")).text()).what,
            "nothing was thrown");
  // A graph in a graph.
  const std::string through =
      R"({"name": "c", "op": "nested.grad_mode", "args": [true, {"graph": "g"}, {"ref": "b"}, {"ref": "a"}]},
                                 {"name": "d", "op": "getitem", "args": [{"ref": "c"}, 0]})";
  expect_refused(writing(other, "nested.grad_mode", R"(false, {"graph": "h"}, {"ref": "y"}, {"ref": "x"})",
                         graph("g", into_a, "w") + graph("h", through, "d")),
                 ErrorCode::kUnsupported, HasSubstr("nested.grad_mode writes into the parameter 'head.weight'"));
  // A branch may return the parameter, which is written afterwards.
  const std::string chosen =
      R"({"name": "c", "op": "nested.cond", "args": [true, {"graph": "g"}, {"graph": "h"}, [{"ref": "y"}, {"ref": "x"}]]},
                                {"name": "d", "op": "getitem", "args": [{"ref": "c"}, 0]}, )";
  expect_refused(writing(other + chosen, "aten.add_.Tensor", R"({"ref": "d"}, 1)", graph("g", "", "b") + graph("h", "", "a")),
                 ErrorCode::kUnsupported, HasSubstr("aten.add_.Tensor writes into the parameter 'head.weight'"));
  EXPECT_EQ(
      refusal_of(
          writing(other + chosen, "aten.add_.Tensor", R"({"ref": "d"}, 1)", graph("g", "", "b") + graph("h", "", "b")).text())
          .what,
      "nothing was thrown");
}

TEST(Graph, UsesNoValueBeforeItIsMade) {
  const std::string later = R"({"name": "a", "op": "aten.neg.default", "args": [{"ref": "total"}]}, )";
  expect_refused({.nodes = later + Text().nodes}, ErrorCode::kCorrupt,
                 HasSubstr("graph 'main', node 'a': the value 'total' is used before it is made"));
  expect_refused({.nodes = node("aten.sum.default", R"({"ref": "total"})")}, ErrorCode::kCorrupt,
                 HasSubstr("used before it is made"));
  expect_refused({.nodes = node("aten.sum.default", R"({"ref": "y"})")}, ErrorCode::kCorrupt,
                 HasSubstr("the value 'y' is made nowhere"));
  expect_refused({.nodes = Text().nodes + "," + Text().nodes}, ErrorCode::kCorrupt, HasSubstr("the name 'total' is there twice"));
}

// Graphs come before those that use them, so that none can hold itself.
TEST(Graph, HoldsNoGraphThatHoldsIt) {
  const std::string call = node("nested.grad_mode", R"(false, {"graph": "main"}, {"ref": "x"})");
  expect_refused({.nodes = call}, ErrorCode::kCorrupt, HasSubstr("the graph 'main' is none of those before this one"));
  std::string before;
  for (int i = 0; i < 10; ++i) {
    const std::string name = "g" + std::to_string(i), below = "g" + std::to_string(i - 1);
    before +=
        R"({"name": ")" + name + R"(", "inputs": ["a"], "nodes": [)" +
        (i == 0 ? ""
                : R"({"name": "b", "op": "nested.grad_mode", "args": [true, {"graph": ")" + below + R"("}, {"ref": "a"}]})") +
        R"(], "outputs": [{"ref": "a"}]}, )";
  }
  expect_refused({.before = before}, ErrorCode::kCorrupt, HasSubstr("graphs are nested deeper than 8 levels"));
  expect_refused({.before = R"({"name": "g", "inputs": [], "nodes": [], "outputs": []}, )",
                  .nodes = node("nested.grad_mode", R"(false, {"graph": "g"}, {"ref": "x"})")},
                 ErrorCode::kCorrupt, HasSubstr("the graph 'g' has other inputs or outputs than its use"));
}

TEST(Graph, ThatIsNoJsonOrCutOffOrTooDeepIsRefusedWithItsPlace) {
  const std::string text = Text().text();
  for (const size_t size : {size_t{0}, size_t{1}, text.size() / 2, text.size() - 1}) {
    const Refusal found = refusal_of(text.substr(0, size));
    EXPECT_EQ(found.code, ErrorCode::kCorrupt) << size;
    EXPECT_THAT(found.what, HasSubstr("the JSON text ends here and is not complete")) << size;
  }
  EXPECT_THAT(refusal_of("{\n  'a': 1}").what, HasSubstr("g.json:2:3: the text is not JSON from here"));
  EXPECT_THAT(refusal_of(text + "}").what, HasSubstr("the text is not JSON from here"));
  EXPECT_THAT(refusal_of(std::string(100000, '[')).what, HasSubstr("nested deeper than 64 levels"));
  EXPECT_THAT(refusal_of(R"({"a": 1, "a": 2})").what, HasSubstr("a key is there twice"));
  EXPECT_THAT(refusal_of(R"({"format": 18446744073709551615})").what, HasSubstr("does not fit into 64 bits"));
  EXPECT_THAT(refusal_of(R"({"format": 99999999999999999999999})").what, HasSubstr("does not fit into 64 bits"));
  EXPECT_THAT(refusal_of("[]").what, HasSubstr("a graph is an object"));
  std::string keys;
  for (int i = 0; i < 2000; ++i) keys += (i ? ",\"k" : "\"k") + std::to_string(i) + "\":0";
  EXPECT_THAT(refusal_of("{" + keys + "}").what, HasSubstr("more than 1024 members"));
}

TEST(Graph, OfOtherArgumentsThanItsOperatorTakesIsRefused) {
  const auto refused = [](const std::string& op, const std::string& args, const std::string& what) {
    expect_refused({.nodes = node(op, args)}, ErrorCode::kCorrupt, HasSubstr(what));
  };
  refused("aten.sum.default", "", "the argument 'self' of aten.sum.default is missing");
  refused("aten.sum.default", "\"x\"", "the argument 'self' is a string");
  refused("aten.sum.default", "null", "the argument 'self' is None");
  refused("aten.sum.default", "{\"device\": \"module\"}", "the argument 'self' is a device");
  refused("aten.sum.dim_IntList", R"({"ref": "x"}, [0, null])", "the argument 'dim' is a list with None");
  refused("aten.sum.dim_IntList", R"({"ref": "x"}, [0.5])", "the argument 'dim' is a number");
  refused("aten.cat.default", R"({"ref": "x"}, 1.0)", "the argument 'dim' is a number");
  refused("aten.to.dtype", R"({"ref": "x"}, {"dtype": "float7"})", "the argument 'dtype' is 'float7'");
  refused("aten.sum.default", R"({"thing": "x"})", "an argument of an unknown kind");
  refused("aten.sum.default", R"({"ref": "x", "dtype": "float32"})", "has one member");
  refused("aten.sum.default", R"({"float": "big"})", "a float is none of inf, -inf and nan");
  refused("aten.sum.default", R"([[[[[1]]]]])", "nested deeper than 4 levels");
  std::string long_list = "0";
  for (int i = 0; i < 5000; ++i) long_list += ", 0";
  refused("aten.sum.dim_IntList", R"({"ref": "x"}, [)" + long_list + "]", "a list of more than 4096 elements");
  refused("getitem", R"({"ref": "x"})", "getitem has a list and an index");
  refused("py.add", "1", "'py.add' has 1 operands");
}

TEST(Graph, OfSeveralResultsGivesThemByGetItemAlone) {
  const std::string sorted = R"({"name": "two", "op": "aten.sort.default", "args": [{"ref": "x"}]}, )";
  expect_refused({.nodes = sorted + node("aten.sum.default", R"({"ref": "two"})")}, ErrorCode::kCorrupt,
                 HasSubstr("a value of several results is used as a whole"));
  expect_refused({.nodes = sorted + node("getitem", R"({"ref": "two"}, 2)")}, ErrorCode::kCorrupt,
                 HasSubstr("a result that there is not: there are 2"));
}

TEST(Graph, WhoseInputsOrOutputsDoNotFitIsRefused) {
  const auto refused = [](const Text& text, const std::string& what) {
    expect_refused(text, ErrorCode::kCorrupt, HasSubstr(what));
  };
  refused({.placeholders = "[]"}, "0 placeholders for a graph of 1 inputs");
  refused({.placeholders = R"([["weights", "x"]])"}, "its kind is none of");
  refused({.placeholders = R"([["input", "y"]])"}, "'y' is none of the inputs");
  refused({.placeholders = R"([["constant", "c0"]])"}, "the constant 'c0' is not in constants.safetensors");
  refused({.outputs = "[]"}, "has 0 outputs, and a model's graph has one, the loss");
  refused({.outputs = "[1.0]"}, "and a model's graph has one, the loss");
  refused({.symbols = "[]"}, "the symbol 's0' is not among the file's symbols");
  refused({.symbols = R"([{"name": "s0", "min": 2, "max": null}, {"name": "s1", "min": 2, "max": null}])"},
          "the symbol 's1' is not a dimension of an input");
  refused({.symbols = R"([{"name": "s0", "min": 2.0, "max": null}])"}, "'min' is a number, and an integer is expected");
  refused({.relations = R"([["~", 1, 2]])"}, "relation 0: '~' is not a relation of sizes");
  refused({.relations = R"([["==", 1]])"}, "has 1 operands, and needs 2");
  refused({.relations = R"([["==", 1, ["^", 1, 2]]])"}, "'^' is not an operator of sizes");
  refused({.main_inputs = "[\"a\\u0007\"]"}, "a name has control characters");
  refused({.main_inputs = "[\"" + std::string(2000, 'a') + "\"]"}, "a name has 2000 bytes");
}

TEST(Graph, ThatReturnsNoScalarIsAnErrorOfItsCall) {
  EXPECT_THROW(result_of({.nodes = node("aten.neg.default", R"({"ref": "x"})")}, {torch::ones({2, 3})}), gannet::Error);
}

// An error of an operator says where it is in the model and what it was given.
TEST(Graph, NamesTheOperatorItsLayerAndShapesWhereOneFails) {
  const Text text{.nodes = node("aten.view.default", R"({"ref": "x"}, [2, -1, 4])")};
  try {
    result_of(text, {torch::ones({2, 3})});
    FAIL();
  } catch (const gannet::Error& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("graph train.fp32: operator aten.view.default (node 'total', layer 'head') failed: "),
                      HasSubstr("its arguments: float32[2, 3], [2, -1, 4]")));
    EXPECT_EQ(error.code(), ErrorCode::kArgument);
  }
  const Text division{.nodes = R"({"name": "n", "op": "py.floordiv", "args": [1, 0]}, )" + Text().nodes};
  try {
    result_of(division, {torch::ones({2, 3})});
    FAIL();
  } catch (const gannet::Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("operator py.floordiv (node 'n') failed: a division of sizes by zero")));
  }
}

// Every text is refused with an error of ours, or it compiles: the reader and the compiler of graphs trust nothing.
TEST(Graph, WithAnyChangeIsRefusedOrCompiles) {
  std::mt19937 random(7);
  const auto below = [&](size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random); };
  const std::string parts[] = {"null", "1",        "1.0", "[]", "{}", "{\"ref\":\"x\"}",
                               "true", "\"main\"", "-1",  ",",  "]",  "9223372036854775807"};
  size_t refused = 0, compiled = 0;
  for (const char* name : {"odd", "residual"}) {
    const std::string whole = archive::read(archive::folder(name) + "/graph.train.fp32.json");
    const auto constants = gannet::load_safetensors(archive::folder(name) + "/constants.safetensors");
    for (int round = 0; round < 1500; ++round) {
      std::string text = whole;
      for (size_t changes = 1 + below(3); changes > 0; --changes) {
        const size_t at = below(text.size());
        if (below(2) == 0)
          text[at] = static_cast<char>(32 + below(95));
        else
          text.replace(at, below(12), parts[below(std::size(parts))]);
      }
      try {
        gannet::exported::Program(gannet::exported::read_graph(text, "g.json"), constants);
        ++compiled;
      } catch (const gannet::Error& error) {
        EXPECT_NE(error.code(), ErrorCode::kInternal) << error.what();
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 500u);
  EXPECT_GT(compiled, 50u);
}

// 1 and 1.0 are different arguments: an integer tensor plus 1.0 is of floating point.
TEST(Graph, KeepsIntegersAndFloatsApart) {
  const auto dtype = [](const std::string& number) {
    const std::string add = R"({"name": "a", "op": "aten.add.Tensor", "args": [{"ref": "x"}, )" + number + "]}, ";
    return result_of({.nodes = add + node("aten.sum.default", R"({"ref": "a"})")}, {torch::ones({2, 3}, at::kLong)})
        .scalar_type();
  };
  EXPECT_EQ(dtype("1"), at::kLong);
  EXPECT_EQ(dtype("1.0"), at::kFloat);
  EXPECT_EQ(dtype(R"({"float": "inf"})"), at::kFloat);
}

}  // namespace
