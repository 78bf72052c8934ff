#include "config/normalize.h"

#include <gannet/error.h>

#include <set>

#include "base/format.h"
#include "base/text.h"
#include "config/advice.h"
#include "config/convert.h"
#include "config/document.h"
#include "config/keys.h"
#include "config/mistakes.h"

namespace gannet::config {
namespace {

class Normalizer {
 public:
  Normalizer(const Tree& written, std::vector<Error>* mistakes, const OwnSections* own)
      : written_(written), mistakes_(mistakes), own_(own) {}

  Tree run() {
    result_.notices = written_.notices;
    result_.origins[""] = written_.origin_of("");
    section(written_.root, "", "", "", result_.root, /*is_open=*/false, 0);
    return std::move(result_);
  }

 private:
  // The JSON pointers of a member: with the names as written (`from`), and with the current names
  // (`to`).
  struct MemberPosition {
    std::string from, to;
  };

  std::string where(const MemberPosition& spot) const { return formatted("{}: ", written_.origin_of(spot.from).to_string()); }

  // `from` and `to`: the JSON pointers of the section with the names as written and with the
  // current names. `path`: its path in the key table.
  void section(const Dict& members, const std::string& from, const std::string& path, const std::string& to, Dict& out,
               bool is_open, int depth);
  void any_member(const std::string& key, const Value& value, const Dict& members, const std::string& from,
                  const std::string& path, const std::string& to, Dict& out, bool is_open, int depth);
  void member(const Key& row, const Value& value, const MemberPosition& spot, const Dict& siblings, Dict& out, int depth);
  void deprecated(const Key& row, const Value& value, const MemberPosition& spot, const Dict& siblings, Dict& out);
  Value plain(const Value& value, const MemberPosition& spot, int depth);

  const Tree& written_;
  std::vector<Error>* const mistakes_;
  const OwnSections* const own_;
  Tree result_;
};

void Normalizer::section(const Dict& members, const std::string& from, const std::string& path, const std::string& to, Dict& out,
                         bool is_open, int depth) {
  std::set<std::string_view> seen;
  for (const auto& [key, value] : members.entries()) {
    const MemberPosition spot{pointer(from, key), pointer(to, key)};
    attempt(mistakes_, [&, &name = key, &written = value] {
      if (!seen.insert(name).second)
        throw Error(ErrorCode::kConfig, formatted("{}the key {} is given twice {}", where(spot), in_quotes(name), place_of(path)),
                    "keep one of the two");
      any_member(name, written, members, from, path, to, out, is_open, depth);
    });
  }
}

void Normalizer::any_member(const std::string& key, const Value& value, const Dict& members, const std::string& from,
                            const std::string& path, const std::string& to, Dict& out, bool is_open, int depth) {
  const MemberPosition spot{pointer(from, key), pointer(to, key)};
  if (is_note(key)) return;
  const std::string full = path.empty() ? key : formatted("{}/{}", path, key);
  const bool is_in_own = own_ && own_->find(path);
  const Key* row = own_ && own_->find(full) ? own_->find(full) : find_key(full);
  if (row) {
    member(*row, value, {spot.from, pointer(to, std::string(row->name()))}, members, out, depth);
  } else if (is_open) {
    out[key] = plain(value, spot, depth + 1);
  } else {
    const std::string advice = is_in_own ? own_->advice_for(key, path) : advice_for(key, path);
    throw Error(
        ErrorCode::kConfig, formatted("{}unknown key {} {}{}", where(spot), in_quotes(key), place_of(path), advice),
        advice.ends_with("leave it out")
            ? "take it out, or add a leading underscore to keep it as a note"
            : formatted("{}add a leading underscore to keep a note in the file; `gannet config keys --all` lists all keys",
                        advice.find("belongs") != std::string::npos ? "move it there, or " : ""));
  }
}

void Normalizer::member(const Key& row, const Value& value, const MemberPosition& spot, const Dict& siblings, Dict& out,
                        int depth) {
  const std::string name(row.name());
  if (out.find(name))
    throw Error(
        ErrorCode::kConfig,
        formatted("{}{} and {} are two names of one key, and both are given", where(spot), in_quotes(row.alias), in_quotes(name)),
        "keep one of the two");
  if (!row.replaced_by.empty()) return deprecated(row, value, spot, siblings, out);

  result_.origins[spot.to] = written_.origin_of(spot.from);
  if (value.is_string() && value.as_string() == "auto") {
    out[name] = value;
  } else if (value.is_null()) {
    if (row.default_json != "null")
      throw Error(ErrorCode::kConfig, formatted("{}{} must be {}, found null", where(spot), dotted(spot.from), wanted(row)),
                  formatted("leave the key out for its default, {}", row.default_json));
    out[name] = value;
  } else if (row.path == "zero_optimization" && !value.is_dict()) {
    // DeepSpeed's first form of the key was a boolean, in which true meant stage 1.
    if (!value.is_bool()) convert(row, value, where(spot) + dotted(spot.from));
    const int stage = value.as_bool() ? 1 : 0;
    result_.notices.push_back(
        formatted("{}a boolean zero_optimization is deprecated: write {{\"stage\": {}}}", where(spot), stage));
    result_.origins[formatted("{}/stage", spot.to)] = written_.origin_of(spot.from);
    out[name] = Dict{{"stage", stage}};
  } else if (row.is_section()) {
    const Value object = convert(row, value, where(spot) + dotted(spot.from));
    Dict inner;
    section(object.as_dict(), spot.from, std::string(row.path), spot.to, inner, row.type == Type::kOpenSection, depth + 1);
    out[name] = std::move(inner);
  } else {
    const Value converted = convert(row, value, where(spot) + dotted(spot.from));
    if (row.type == Type::kSize && value.is_number() && value.as_number() != converted.as_number())
      result_.notices.push_back(formatted("{}{} = {} is rounded down to {}: a size is a whole number", where(spot),
                                          dotted(spot.from), value.to_json(), converted.to_json()));
    Value& kept = out[name] = plain(converted, spot, depth);
    if (row.path == "optimizer/params" && kept.as_dict().erase("max_grad_norm"))  // so that the plugin does not report it again
      throw Error(ErrorCode::kConfig,
                  formatted("{}{}.max_grad_norm: clipping is the engine's work, not the optimizer's",
                            where({pointer(spot.from, "max_grad_norm"), ""}), dotted(spot.from)),
                  "write gradient_clipping at the top level");
  }
}

void Normalizer::deprecated(const Key& row, const Value& value, const MemberPosition& spot, const Dict& siblings, Dict& out) {
  const Key& successor = *find_key(row.replaced_by);
  const std::string name(successor.name());
  if (siblings.find(name) || (!successor.alias.empty() && siblings.find(successor.alias)))
    throw Error(
        ErrorCode::kConfig,
        formatted("{}{} is the deprecated form of {}, and both are given", where(spot), in_quotes(row.name()), in_quotes(name)),
        formatted("keep {}", name));
  if (value.is_string() && value.as_string() == "auto")
    result_.notices.push_back(
        formatted("{}\"auto\" taken as its default: {} = {}", where(spot), dotted(spot.from), row.default_json));
  if (value.is_null() || (value.is_string() && value.as_string() == "auto")) return;
  const Value converted = convert(row, value, where(spot) + dotted(spot.from));
  const std::string to = spot.to.substr(0, spot.to.rfind('/') + 1) + name;
  result_.notices.push_back(formatted("{}{} is deprecated: write {}", where(spot), dotted(spot.from), name));
  result_.origins[to] = written_.origin_of(spot.from);
  if (successor.is_section()) {
    out[name] = converted.as_bool() ? Value(Dict{{"device", "cpu"}}) : Value();
  } else {
    out[name] = convert(successor, converted, where(spot) + dotted(spot.from));
  }
}

// Copies a value that is not a section of the key table, without the user's notes (is_note). Records
// where its members were written.
Value Normalizer::plain(const Value& value, const MemberPosition& spot, int depth) {
  if (depth > kMaxDepth) throw Error(ErrorCode::kConfig, formatted("{}nested deeper than {} levels", where(spot), kMaxDepth));
  const auto origin = written_.origins.find(spot.from);
  if (origin != written_.origins.end()) result_.origins[spot.to] = origin->second;
  if (value.is_list()) {
    List list;
    for (const Value& element : value.as_list()) {
      const std::string index = std::to_string(list.size());
      list.push_back(plain(element, {pointer(spot.from, index), pointer(spot.to, index)}, depth + 1));
    }
    return list;
  }
  if (!value.is_dict()) return value;
  Dict out;
  for (const auto& [key, element] : value.as_dict().entries()) {
    const MemberPosition inner{pointer(spot.from, key), pointer(spot.to, key)};
    if (is_note(key)) continue;
    if (out.find(key))
      throw Error(ErrorCode::kConfig,
                  formatted("{}the key {} is given twice in {}", where(inner), in_quotes(key), dotted(spot.from)),
                  "keep one of the two");
    out[key] = plain(element, inner, depth + 1);
  }
  return out;
}

}  // namespace

Tree normalize(const Tree& written, std::vector<Error>* mistakes, const OwnSections* own) {
  return Normalizer(written, mistakes, own).run();
}

}  // namespace gannet::config
