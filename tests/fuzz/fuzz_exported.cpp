// Any text as a graph of an exported model: read, its relations evaluated and written for a person, or one gannet::Error.
#include <gannet/error.h>

#include <cstdint>
#include <string>
#include <vector>

#include "exported/graph.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gannet::exported;
  try {
    const GraphFile file = read_graph(std::string(reinterpret_cast<const char*>(data), size), "fuzzed.json");
    std::vector<int64_t> values;
    std::vector<std::string> names;
    for (const Symbol& symbol : file.symbols) {
      values.push_back(symbol.min);
      names.push_back(symbol.name);
    }
    for (const Relation& relation : file.relations) {
      holds(relation, values);
      to_text(relation, names);
    }
    for (const Input& input : file.inputs)
      for (const Size& size_of_dim : input.shape) evaluate(size_of_dim, values);
  } catch (const gannet::Error&) {
  }
  return 0;
}
