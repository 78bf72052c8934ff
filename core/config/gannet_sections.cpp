#include "config/gannet_sections.h"

#include <gannet/error.h>

#include <algorithm>
#include <charconv>

#include "base/format.h"
#include "base/text.h"
#include "config/convert.h"
#include "config/document.h"

namespace gannet::config {
namespace {

constexpr std::pair<const char*, Type> kTypes[] = {
    {"boolean", Type::kBool},    {"integer", Type::kInt},   {"size", Type::kBytes}, {"number", Type::kNumber},
    {"string", Type::kString},   {"choice", Type::kChoice}, {"list", Type::kList},  {"strings", Type::kStrings},
    {"objects", Type::kObjects}, {"any", Type::kAny},
};

bool is_number(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

bool is_range(Type type, std::string_view range) {
  if (type == Type::kChoice) return !range.empty();
  if (range.empty()) return true;
  if (type != Type::kInt && type != Type::kBytes && type != Type::kNumber) return false;
  if (const size_t dots = range.find(".."); dots != std::string_view::npos)
    return is_number(range.substr(0, dots)) && is_number(range.substr(dots + 2));
  return range.starts_with('>') && is_number(range.substr(range.starts_with(">=") ? 2 : 1));
}

bool is_name(std::string_view name) {
  return !name.empty() && !is_note(std::string(name)) && std::all_of(name.begin(), name.end(), [](unsigned char letter) {
    return std::isalnum(letter) || letter == '_' || letter == '-';
  });
}

[[noreturn]] void wrong(const std::string& section, const std::string& row, const std::string& what, const std::string& next) {
  throw Error(ErrorCode::kArgument,
              row.empty() ? formatted("ConfigSection {}: {}", in_quotes(section), what)
                          : formatted("ConfigSection {}, row {}: {}", in_quotes(section), in_quotes(row), what),
              next);
}

Type type_of(const ConfigSection& section, const ConfigRow& row) {
  std::vector<std::string> names;
  for (const auto& [name, type] : kTypes) {
    if (row.type == name) return type;
    names.emplace_back(name);
  }
  wrong(section.name(), row.name, formatted("there is no type {}{}", in_quotes(row.type), gannet::did_you_mean(row.type, names)),
        formatted("it is one of {}", join(names, ", ")));
}

}  // namespace

OwnSections::OwnSections(const std::vector<ConfigSection>& sections) {
  for (const ConfigSection& section : sections) {
    if (config::find_key(section.name()))
      wrong(section.name(), "", "the config has a key of this name already", "choose another name");
    if (find(section.name())) wrong(section.name(), "", "two sections have this name", "put the rows into one of them");
    add(section.name(), Type::kSection, {.name = section.name(), .type = "section", .doc = "a section of the program's own"});
    for (const ConfigRow& row : section.rows()) {
      std::string path = section.name();
      const std::vector<std::string> parts = split(row.name, '.');
      for (size_t i = 0; i < parts.size(); ++i) {
        path += formatted("/{}", parts[i]);
        const Key* there = find(path);
        if (i + 1 < parts.size()) {
          if (!there) there = &add(path, Type::kSection, {.name = path, .type = "section"});
          if (!there->is_section())
            wrong(section.name(), row.name, formatted("{} is a value, not a section", dotted(path)), "rename one");
        } else if (there) {
          wrong(section.name(), row.name, "it is listed twice", "keep one of the two");
        }
      }
      add(path, type_of(section, row), row);
    }
  }
}

const Key& OwnSections::add(const std::string& path, Type type, const ConfigRow& row) {
  const auto kept = [&](std::string text) -> std::string_view { return texts_.emplace_back(std::move(text)); };
  const Key& key = keys_.emplace_back(Key{.path = kept(path),
                                          .type = type,
                                          .default_json = type == Type::kSection ? "null" : kept(row.fallback.to_json()),
                                          .status = Status::kActive,
                                          .range = kept(row.range),
                                          .meaning = kept(row.doc)});
  order_.push_back(&key);
  by_path_.emplace(path, &key);
  defaults_.emplace(
      &key, row.fallback.is_null() ? row.fallback : convert(key, row.fallback, formatted("the default of {}", dotted(path))));
  return key;
}

const Key* OwnSections::find(std::string_view path) const {
  const auto found = by_path_.find(path);
  return found == by_path_.end() ? nullptr : found->second;
}

const Value& OwnSections::default_of(const Key& key) const { return defaults_.at(&key); }

std::string OwnSections::advice_for(const std::string& key, const std::string& section) const {
  std::vector<std::string> names;
  const std::string head = formatted("{}/", section);
  for (const Key* row : order_)
    if (row->path.starts_with(head) && row->path.find('/', head.size()) == std::string_view::npos)
      names.emplace_back(row->name());
  return gannet::did_you_mean(key, names);
}

}  // namespace gannet::config

namespace gannet {

ConfigSection::ConfigSection(std::string name, std::vector<ConfigRow> rows) : name_(std::move(name)), rows_(std::move(rows)) {
  if (!config::is_name(name_))
    config::wrong(name_, "", "this is no name of a section", "letters, digits, '-' and '_', and neither '_' nor 'x-' in front");
  for (const ConfigRow& row : rows_) {
    for (const std::string& part : split(row.name, '.'))
      if (row.name.empty() || !config::is_name(part))
        config::wrong(name_, row.name, "this is no name of a key",
                      "letters, digits, '-' and '_', and neither '_' nor 'x-' in front; '.' between inner sections");
    const config::Type type = config::type_of(*this, row);
    if (!config::is_range(type, row.range))
      config::wrong(name_, row.name, formatted("{} is no range of a {}", in_quotes(row.range), row.type),
                    "of numbers \">=0\", \">0\" or \"0..1\"; of a choice \"one|two\"; none of other types");
  }
  config::OwnSections({*this});  // checks for duplicate rows and for defaults that do not fit
}

}  // namespace gannet
