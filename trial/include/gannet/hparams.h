/// A trial's hyperparameters: nested values by name, typed where they are read.
///
///   const gannet::Hparams& hparams = context.get_hparams();
///   const double rate = hparams.get<double>("lr");
///   const auto width = hparams.get<int64_t>("model.width");            // dots go into dictionaries
///   const auto dropout = hparams.get<double>("model.dropout", 0.1);    // 0.1 where it is missing
///   const gannet::Hparams model = hparams.section("model");            // model.get<int64_t>("width")
///
/// A value that is missing or of another type is Error(kArgument) that names the hyperparameter, the type that was asked for,
/// what was found, and where it came from ("hparams.yaml:3", "command line"). An integer is a number too.
///
/// Reads are recorded: a name given on the command line that the trial never reads is an error, not
/// a hyperparameter without effect.
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
  /// `where` starts error texts, for example a file's path. `origins` maps a value's path to its
  /// source if that is not `where`.
  explicit Hparams(Dict values, std::string where = "code", std::map<std::string, std::string> origins = {});

  /// T: bool, int, int64_t, float, double, std::string, a std::vector of those, Dict, List or Value.
  template <class T>
  T get(const std::string& name) const;
  /// Returns `fallback` if the value is missing or null.
  template <class T>
  T get(const std::string& name, T fallback) const {
    return has(name) ? get<T>(name) : fallback;
  }
  bool has(const std::string& name) const;  ///< and is not null
  /// Returns a nested dictionary, with the same errors and the same record of reads.
  Hparams section(const std::string& name) const;
  /// All values; everything counts as read.
  const Dict& values() const;

  std::string origin(const std::string& name) const;  ///< "hparams.yaml:3", "command line"
  const std::string& where() const;
  bool was_read(const std::string& name) const;  ///< it, a dictionary around it, or something in it
  std::vector<std::string> asked_for() const;    ///< names that the trial asked for, present or not
  const Dict& peek() const;                      ///< all values; nothing counts as read

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::string prefix_;  // "model." of a section
};

}  // namespace gannet
