/// A trial's hyperparameters: nested values by name, converted to a type where they are read.
///
///   const gannet::Hparams& hparams = context.get_hparams();
///   const double rate = hparams.get<double>("lr");
///   const auto width = hparams.get<int64_t>("model.width");            // dots enter dictionaries
///   const auto dropout = hparams.get<double>("model.dropout", 0.1);    // 0.1 if it is missing
///   const gannet::Hparams model = hparams.section("model");            // model.get<int64_t>("width")
///
/// A value that is missing or of a different type causes an Error(kArgument) that names the
/// hyperparameter, the requested type, what was found, and where it came from ("hparams.yaml:3",
/// "command line"). An integer is a number too.
///
/// Reads are recorded, so that a name that is given on the command line but never read by the trial
/// is an error instead of being silently ignored.
#pragma once

#include <gannet/value.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace gannet {

class Hparams {
 public:
  Hparams() : Hparams(Dict()) {}
  /// `where` starts error texts, for example with a file's path. `origins` maps the path of a value
  /// to its source if that is not `where`.
  explicit Hparams(Dict values, std::string where = "code", std::map<std::string, std::string> origins = {});

  /// T may be bool, int, int64_t, float, double, std::string, a std::vector of those, Dict, List or
  /// Value.
  template <class T>
  T get(const std::string& name) const;
  /// Returns `fallback` if the value is missing or null.
  template <class T>
  T get(const std::string& name, T fallback) const {
    return has(name) ? get<T>(name) : fallback;
  }
  bool has(const std::string& name) const;  ///< whether there is a value that is not null
  /// Returns a nested dictionary, with the same error texts and the same record of reads.
  Hparams section(const std::string& name) const;
  /// All values; they all count as read.
  const Dict& values() const;

  std::string origin(const std::string& name) const;  ///< for example "hparams.yaml:3" or "command line"
  const std::string& where() const;
  bool was_read(const std::string& name) const;  ///< whether the value, a dictionary around it, or something in it was read
  std::vector<std::string> asked_for() const;    ///< names that the trial asked for, present or not
  const Dict& peek() const;                      ///< all values; none of them counts as read

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::string prefix_;  // for example "model." for a section
};

}  // namespace gannet
