// The parsed form of a file graph.MODE.DTYPE.json: consistent in itself, but not yet checked
// against LibTorch's operators. python/gannet_export writes these files; its values.py, shapes.py
// and graph.py describe the format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sizes.h"

namespace gannet::exported {

inline constexpr int64_t kFormat = 1;
inline constexpr size_t kMostNested = 8;        // nested graphs
inline constexpr size_t kMostNodes = 1 << 20;   // per file
inline constexpr size_t kMostArguments = 4096;  // per node, and elements of one list among them

// An argument of a node.
struct Argument {
  enum class Kind { kNone, kBool, kInt, kFloat, kString, kList, kValue, kGraph, kDtype, kLayout, kMemoryFormat, kDevice };
  Kind kind = Kind::kNone;
  int64_t integer = 0;         // kBool, kInt; kValue: the index of the value; kGraph: the index of the graph
  double real = 0;             // kFloat
  std::string text;            // kString; the name of kDtype, kLayout, kMemoryFormat
  std::vector<Argument> list;  // kList
};

struct Node {
  std::string name;
  std::string op;     // "aten.add.Tensor", "py.add", "getitem", "nested.cond"
  std::string layer;  // "transformer.h.0.attn"; empty for the top level
  std::vector<Argument> arguments;
  std::vector<std::pair<std::string, Argument>> keywords;
};

// Values are numbered: the `inputs` first, then one for each node. Arguments refer only to values
// and graphs with lower numbers, so that neither can form a cycle.
struct Graph {
  std::string name;
  std::vector<std::string> inputs;
  std::vector<Node> nodes;
  std::vector<Argument> outputs;
  size_t depth = 0;  // the depth of nested graphs; 0 without any
};

struct Input {
  std::string name;
  std::string dtype;
  std::vector<Size> shape;
};

// The role of an input of the outermost graph.
struct Placeholder {
  enum class Kind { kParameter, kBuffer, kConstant, kInput };
  Kind kind = Kind::kInput;
  std::string target;
};

struct GraphFile {
  std::string path;
  std::string torch_version;
  std::string mode;   // "train", "eval"
  std::string dtype;  // "fp32", "bf16"
  std::vector<Symbol> symbols;
  std::vector<Input> inputs;
  std::vector<Relation> relations;
  std::vector<Placeholder> placeholders;  // one for each input of the last graph
  std::vector<Graph> graphs;              // the last one is the outermost
};

// Throws Error(kUnsupported) for another version of the format, and Error(kCorrupt), with the graph
// and the node, for every other fault. `path` is for messages.
GraphFile read_graph(const std::string& text, const std::string& path);

}  // namespace gannet::exported
