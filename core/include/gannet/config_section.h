/// Sections of the config that belong to the program, checked against a table as Gannet's own
/// sections are.
///
///   const gannet::ConfigSection kCorpus("corpus", {
///       {.name = "path", .type = "string", .doc = "folder of the samples"},
///       {.name = "mix", .type = "number", .fallback = 0.5, .range = "0..1", .doc = "share of the second corpus"},
///       {.name = "filter.language", .type = "choice", .fallback = "en", .range = "en|de", .doc = "of the samples"}});
///   gannet::Config config = gannet::read_config("ds_config.json", {kCorpus});
///   double mix = config.get("corpus.mix").value.as_number();
///
/// An unknown key, a wrong type and a value out of range are Error(kConfig) with file:line:column,
/// as anywhere in the config. `get` returns the default if the config does not set the key.
/// `resolve`, `is_valid` and the log at the start of a run include the section.
#pragma once

#include <gannet/config.h>

#include <string>
#include <vector>

namespace gannet {

/// One key of a program's own section.
struct ConfigRow {
  std::string name;          ///< inside the section; "filter.language" is a key of an inner section
  std::string type;          ///< boolean, integer, size ("2GB" too), number, string, choice, list, strings, objects, any
  Value fallback = nullptr;  ///< the default value; null: none
  std::string range = "";    ///< for numbers ">=0", ">0", "0..1" (both ends included); for a choice "en|de"
  std::string doc = "";      ///< one line of description, which errors also show
};

class ConfigSection {
 public:
  /// Throws Error(kArgument) if a row has an unknown type, a malformed range or a default that is
  /// out of range, or if a name is in the table twice.
  ConfigSection(std::string name, std::vector<ConfigRow> rows);

  const std::string& name() const { return name_; }
  const std::vector<ConfigRow>& rows() const { return rows_; }

 private:
  std::string name_;
  std::vector<ConfigRow> rows_;
};

/// Reads a config that also has these sections, from anything that Config's constructors take: a
/// path, JSON text or a dictionary. The result keeps the table when it is copied, overwritten or
/// filled.
Config read_config(const std::string& path_or_json, const std::vector<ConfigSection>& sections);
Config read_config(const Dict& dictionary, const std::vector<ConfigSection>& sections);

}  // namespace gannet
