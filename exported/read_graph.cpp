#include <gannet/error.h>

#include <algorithm>

#include "common/bounded_json.h"
#include "graph.h"
#include "json_members.h"
#include "read_arguments.h"

namespace gannet::exported {
namespace {

class Reader {
 public:
  Reader(const std::string& text, const std::string& path) : root_(common::parse_bounded_json(text, path)) { file_.path = path; }

  GraphFile read() {
    if (!root_.is_dict()) refuse_file(file_.path, std::string("a graph is an object { ... }, found ") + root_.type_name());
    read_versions();
    read_symbols();
    read_inputs();
    for (const Value& one : list(root_, "relations", file_.path))
      file_.relations.push_back(
          read_relation(one, file_.symbols, file_.path + ": relation " + std::to_string(file_.relations.size())));
    for (const Value& one : list(root_, "graphs", file_.path)) read_one_graph(one);
    if (file_.graphs.empty()) refuse_file(file_.path, "there is no graph in 'graphs'");
    read_placeholders();
    return std::move(file_);
  }

 private:
  void read_versions();
  void read_symbols();
  void read_inputs();
  void read_placeholders();
  void read_one_graph(const Value& json);
  Node read_node(const Value& json, ArgumentReader& arguments, const std::string& where);

  Value root_;
  GraphFile file_;
  size_t nodes_ = 0;
};

void Reader::read_versions() {
  const Value& by = member(root_, "exported_by", file_.path);
  file_.torch_version = text(by, "torch", file_.path + ": exported_by");
  if (const int64_t found = integer(root_, "format", file_.path); found != kFormat)
    throw Error(ErrorCode::kUnsupported,
                file_.path + ": format " + std::to_string(found) + ", and this Gannet reads format " + std::to_string(kFormat) +
                    "; gannet_export " + text(by, "gannet_export", file_.path + ": exported_by") + " wrote it",
                found > kFormat ? "use a newer Gannet, or export with the gannet_export of this one (python/ in its sources)"
                                : "export the model again, with the gannet_export of this Gannet (python/ in its sources)");
  file_.mode = text(root_, "mode", file_.path);
  if (file_.mode != "train" && file_.mode != "eval")
    refuse_file(file_.path, "mode '" + file_.mode + "' is neither train nor eval");
  file_.dtype = text(root_, "dtype", file_.path);
  if (file_.dtype != "fp32" && file_.dtype != "bf16")
    refuse_file(file_.path, "dtype '" + file_.dtype + "' is neither fp32 nor bf16");
}

void Reader::read_symbols() {
  for (const Value& one : list(root_, "symbols", file_.path)) {
    const std::string where = file_.path + ": symbol " + std::to_string(file_.symbols.size());
    Symbol symbol{text(one, "name", where), integer(one, "min", where), std::nullopt};
    if (!member(one, "max", where).is_null()) symbol.max = integer(one, "max", where);
    for (const Symbol& earlier : file_.symbols)
      if (earlier.name == symbol.name) refuse_file(where, "'" + symbol.name + "' is there twice");
    if (file_.symbols.size() >= kMostArguments) refuse_file(where, "too many symbols");
    file_.symbols.push_back(std::move(symbol));
  }
}

// Every symbol must occur as a dimension of an input on its own; a call reads its value there.
void Reader::read_inputs() {
  std::vector<bool> is_defined(file_.symbols.size());
  for (const Value& one : list(root_, "inputs", file_.path)) {
    const std::string where = file_.path + ": input " + std::to_string(file_.inputs.size());
    Input input{text(one, "name", where), text(one, "dtype", where), {}};
    for (const Input& earlier : file_.inputs)
      if (earlier.name == input.name) refuse_file(where, "'" + input.name + "' is there twice");
    if (file_.inputs.size() >= kMostArguments) refuse_file(where, "too many inputs");
    for (const Value& dim : list(one, "shape", where)) {
      if (input.shape.size() >= 64) refuse_file(where, "more than 64 dimensions");
      input.shape.push_back(read_size(dim, file_.symbols, where));
      if (input.shape.back().op == Size::Op::kSymbol) is_defined[static_cast<size_t>(input.shape.back().number)] = true;
    }
    file_.inputs.push_back(std::move(input));
  }
  for (size_t i = 0; i < is_defined.size(); ++i)
    if (!is_defined[i]) refuse_file(file_.path, "the symbol '" + file_.symbols[i].name + "' is not a dimension of an input");
}

void Reader::read_placeholders() {
  const Graph& main = file_.graphs.back();
  for (const Value& one : list(root_, "placeholders", file_.path)) {
    const std::string where = file_.path + ": placeholder " + std::to_string(file_.placeholders.size());
    if (!one.is_list() || one.as_list().size() != 2 || !one.as_list()[0].is_string() || !one.as_list()[1].is_string())
      refuse_file(where, "it is not a pair of a kind and a name");
    const std::string kind = one.as_list()[0].as_string(), target = one.as_list()[1].as_string();
    require_name(target, where);
    using Kind = Placeholder::Kind;
    if (kind != "parameter" && kind != "buffer" && kind != "constant" && kind != "input")
      refuse_file(where, "its kind is none of parameter, buffer, constant and input");
    file_.placeholders.push_back({kind == "parameter"  ? Kind::kParameter
                                  : kind == "buffer"   ? Kind::kBuffer
                                  : kind == "constant" ? Kind::kConstant
                                                       : Kind::kInput,
                                  target});
    if (kind == "input" &&
        std::none_of(file_.inputs.begin(), file_.inputs.end(), [&](const Input& in) { return in.name == target; }))
      refuse_file(where, "'" + target + "' is none of the inputs");
  }
  if (file_.placeholders.size() != main.inputs.size())
    refuse_file(file_.path, std::to_string(file_.placeholders.size()) + " placeholders for a graph of " +
                                std::to_string(main.inputs.size()) + " inputs");
  if (main.outputs.size() != 1 || main.outputs[0].kind != Argument::Kind::kValue)
    refuse_file(file_.path, "the graph '" + main.name + "' has " + std::to_string(main.outputs.size()) +
                                " outputs, and a model's graph has one, the loss");
}

void Reader::read_one_graph(const Value& json) {
  Graph graph;
  graph.name = text(json, "name", file_.path + ": graph " + std::to_string(file_.graphs.size()));
  const std::string where = file_.path + ": graph '" + graph.name + "'";
  for (const Graph& earlier : file_.graphs)
    if (earlier.name == graph.name) refuse_file(where, "there are two of this name");
  if (file_.graphs.size() >= kMostArguments) refuse_file(where, "too many graphs");
  ArgumentReader arguments(file_.graphs);
  for (const Value& one : list(json, "inputs", where)) {
    if (!one.is_string()) refuse_file(where, "the name of an input is not a string");
    require_name(one.as_string(), where);
    arguments.add_value(one.as_string(), where);
    graph.inputs.push_back(one.as_string());
  }
  const List& nodes = list(json, "nodes", where);
  arguments.expect(nodes);
  for (const Value& one : nodes) {
    if (++nodes_ > kMostNodes) refuse_file(where, "more than " + std::to_string(kMostNodes) + " nodes");
    graph.nodes.push_back(read_node(one, arguments, where));
  }
  for (const Value& one : list(json, "outputs", where)) graph.outputs.push_back(arguments.read(one, where + ", outputs"));
  graph.depth = arguments.depth();
  if (graph.depth > kMostNested) refuse_file(where, "graphs are nested deeper than " + std::to_string(kMostNested) + " levels");
  file_.graphs.push_back(std::move(graph));
}

Node Reader::read_node(const Value& json, ArgumentReader& arguments, const std::string& graph) {
  Node node;
  node.name = text(json, "name", graph + ", a node");
  std::string where = graph + ", node '" + node.name + "'";
  if (json.as_dict().find("layer")) node.layer = text(json, "layer", where);
  if (!node.layer.empty()) where += " of layer '" + node.layer + "'";
  node.op = text(json, "op", where);
  for (const Value& one : list(json, "args", where)) node.arguments.push_back(arguments.read(one, where));
  if (const Value* keywords = json.as_dict().find("kwargs")) {
    if (!keywords->is_dict()) refuse_file(where, "'kwargs' is not an object");
    for (const auto& [key, one] : keywords->as_dict().entries()) {
      require_name(key, where);
      node.keywords.emplace_back(key, arguments.read(one, where));
    }
  }
  if (node.arguments.size() > kMostArguments) refuse_file(where, "more than " + std::to_string(kMostArguments) + " arguments");
  arguments.add_value(node.name, where);
  return node;
}

}  // namespace

GraphFile read_graph(const std::string& text, const std::string& path) { return Reader(text, path).read(); }

}  // namespace gannet::exported
