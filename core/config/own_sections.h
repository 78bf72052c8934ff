// The sections that a program adds to the key table, as rows of that table. They belong to the documents that are read with them.
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
  // Error(kArgument) where a name is one of Gannet's or DeepSpeed's, or stands twice.
  explicit OwnSections(const std::vector<ConfigSection>& sections);
  OwnSections(const OwnSections&) = delete;

  const Key* find(std::string_view path) const;                   // "corpus/mix"; null: none
  const Value& default_of(const Key& key) const;                  // of a row of these
  const std::vector<const Key*>& rows() const { return order_; }  // sections before their members
  // "; did you mean 'mix'?", for a key that stands in one of these sections.
  std::string advice_for(const std::string& key, const std::string& section) const;

 private:
  const Key& add(const std::string& path, Type type, const ConfigRow& row);

  std::deque<std::string> texts_;  // that the rows view
  std::deque<Key> keys_;
  std::vector<const Key*> order_;
  std::map<std::string, const Key*, std::less<>> by_path_;
  std::map<const Key*, Value> defaults_;
};

}  // namespace gannet::config
