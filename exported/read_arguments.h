// Reads the arguments of nodes, and resolves names of values and graphs to their numbers.
#pragma once

#include <gannet/value.h>

#include <cstddef>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph.h"

namespace gannet::exported {

class ArgumentReader {
 public:
  // `earlier`: the graphs that arguments may refer to.
  explicit ArgumentReader(const std::vector<Graph>& earlier) : earlier_(earlier) {}

  // Gives the value the next number. Throws if the name is taken.
  void add_value(const std::string& name, const std::string& where);
  // Registers the names of all nodes, so that errors can distinguish a value that is used too early
  // from one that does not exist.
  void expect(const List& nodes);
  Argument read(const Value& json, const std::string& where) { return read(json, where, 0); }
  // The nesting depth of the graph being read.
  size_t depth() const { return depth_; }

 private:
  Argument read(const Value& json, const std::string& where, size_t level);
  Argument read_tagged(const Dict& json, const std::string& where);

  const std::vector<Graph>& earlier_;
  std::unordered_map<std::string, size_t> values_;
  std::unordered_set<std::string> expected_;
  size_t depth_ = 0;
};

}  // namespace gannet::exported
