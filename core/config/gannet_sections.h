// The sections that a program adds to the key table, as rows. They apply only to the documents that
// were read with them.
#pragma once

#include <gannet/config_section.h>

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/keys.h"

namespace gannet::config {

class OwnSections {
 public:
  // Throws Error(kArgument) for a name that is taken or given twice, and Error(kConfig) for a default that does not fit.
  explicit OwnSections(const std::vector<ConfigSection>& sections);
  OwnSections(const OwnSections&) = delete;

  const Key* find(std::string_view path) const;                   // "corpus/mix"; null if there is none
  const Value& default_of(const Key& key) const;                  // `key` must be one of these rows
  const std::vector<const Key*>& rows() const { return order_; }  // sections before their members
  // Advice on an unknown key in one of these sections: "; did you mean 'mix'?".
  std::string advice_for(const std::string& key, const std::string& section) const;

 private:
  const Key& add(const std::string& path, Type type, const ConfigRow& row);

  std::deque<std::string> texts_;  // storage for the strings that the rows view
  std::deque<Key> keys_;
  std::vector<const Key*> order_;
  std::map<std::string, const Key*, std::less<>> by_path_;
  std::map<const Key*, Value> defaults_;
};

}  // namespace gannet::config
