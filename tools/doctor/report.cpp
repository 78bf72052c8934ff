#include "doctor/report.h"

#include <algorithm>
#include <cctype>

#include "base/format.h"
#include "base/table.h"
#include "base/text.h"

namespace gannet::doctor {
namespace {

const char* word_for(PluginState state) {
  return state == PluginState::kUsable ? "usable" : state == PluginState::kNotHere ? "not here" : "BROKEN";
}

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// A broken file may not state what it provides: the row then has the file's own name.
std::string name_of(const FoundPlugin& found) { return found.name.empty() ? file_name(found.file) : found.name; }

std::string numbered(const std::vector<Finding>& findings, const std::string& indent) {
  std::string text;
  for (size_t i = 0; i < findings.size(); ++i) {
    text += formatted("{}{}. {}\n", indent, i + 1, findings[i].what);
    if (!findings[i].next_step.empty()) text += formatted("{}   {}\n", indent, findings[i].next_step);
  }
  return text;
}

std::string verdict(const Diagnosis& diagnosis) {
  if (diagnosis.problems.empty()) return "all well";
  return std::to_string(diagnosis.problems.size()) + (diagnosis.problems.size() == 1 ? " problem" : " problems");
}

List list_of(const std::vector<Finding>& findings) {
  List list;
  for (const Finding& finding : findings) list.push_back(Dict{{"what", finding.what}, {"next_step", finding.next_step}});
  return list;
}

bool is_part_of_word(char letter) { return std::isalnum(static_cast<unsigned char>(letter)) || letter == '_'; }

}  // namespace

std::string as_text(const Diagnosis& diagnosis) {
  std::string text;
  size_t width = 0;
  for (const Section& section : diagnosis.sections)
    for (const Fact& fact : section.facts) width = std::max(width, fact.name.size());
  const auto add = [&](const Section& section) {
    text += formatted("{}\n", section.title);
    for (const Fact& fact : section.facts)
      text += formatted("  {}{}{}\n", fact.name, std::string(width - fact.name.size() + 2, ' '), fact.text);
    text += "\n";
  };
  for (const Section& section : diagnosis.sections) add(section);
  Table table({"plugins", "name", "device", "version", "state"});
  for (const FoundPlugin& found : diagnosis.plugins)
    table.add({formatted("  {}", found.kind.empty() ? "?" : found.kind), name_of(found),
               found.device.empty() ? "any" : found.device, found.version.empty() ? "-" : found.version,
               word_for(found.state) + (found.remark.empty() ? "" : formatted(": {}", found.remark))});
  text += formatted("{}\n", table.to_string());
  if (!diagnosis.notes.empty()) text += formatted("notes\n{}\n", numbered(diagnosis.notes, "  "));
  return formatted("{}{}{}\n{}", text, verdict(diagnosis), diagnosis.problems.empty() ? "" : ":",
                   numbered(diagnosis.problems, "  "));
}

std::string without_secrets(std::string text, const std::vector<std::pair<std::string, std::string>>& secrets) {
  auto longest_first = secrets;
  std::sort(longest_first.begin(), longest_first.end(),
            [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  for (const auto& [secret, placeholder] : longest_first)
    for (size_t at = 0; !secret.empty() && (at = text.find(secret, at)) != std::string::npos;) {
      const size_t end = at + secret.size();
      const bool is_whole = (at == 0 || !is_part_of_word(text[at - 1]) || !is_part_of_word(secret.front())) &&
                            (end == text.size() || !is_part_of_word(text[end]) || !is_part_of_word(secret.back()));
      if (is_whole) text.replace(at, secret.size(), placeholder);
      at += is_whole ? placeholder.size() : 1;
    }
  // Also replace other users' homes, as in the path of a shared plugin.
  for (size_t at = 0; (at = text.find("/home/", at)) != std::string::npos;) {
    at += 6;
    const size_t end = std::min(text.find_first_of("/ :,;)\n", at), text.size());
    if (end > at && text[at] != '<') text.replace(at, end - at, "<user>");
  }
  return text;
}

std::string as_markdown(const Diagnosis& diagnosis) {
  std::string text = formatted("### gannet doctor: {}\n\n", verdict(diagnosis));
  if (!diagnosis.problems.empty()) text += formatted("{}\n", numbered(diagnosis.problems, ""));
  if (!diagnosis.notes.empty()) text += formatted("Notes:\n\n{}\n", numbered(diagnosis.notes, ""));
  text += "| plugin | name | device | version | state |\n|---|---|---|---|---|\n";
  const auto cell = [](std::string content) {
    for (size_t at = 0; (at = content.find('|', at)) != std::string::npos; at += 2) content.insert(at, "\\");
    return content;
  };
  for (const FoundPlugin& found : diagnosis.plugins)
    text += formatted("| {} | {} | {} | {} | {}{} |\n", found.kind, cell(name_of(found)), found.device, found.version,
                      word_for(found.state), found.remark.empty() ? "" : formatted(": {}", cell(found.remark)));
  for (const Section& section : diagnosis.sections) {
    text += formatted("\n**{}**\n\n", section.title);
    for (const Fact& fact : section.facts) text += formatted("- {}: {}\n", fact.name, fact.text);
  }
  return formatted(
      "{}\nNames of the host and of users, home folders and addresses were replaced by `<host>`, `<user>`, `~` and `<address>`; "
      "look it through before you publish it.\n",
      without_secrets(std::move(text), diagnosis.secrets));
}

std::string as_json(const Diagnosis& diagnosis) {
  Dict facts;
  for (const Section& section : diagnosis.sections) {
    Dict of_section;
    for (const Fact& fact : section.facts)
      of_section[fact.name] = fact.value.is_null() ? Value(fact.text) : Value(Dict{{"value", fact.value}, {"text", fact.text}});
    facts[section.title] = std::move(of_section);
  }
  List plugins;
  for (const FoundPlugin& found : diagnosis.plugins)
    plugins.push_back(Dict{{"kind", found.kind},
                           {"name", found.name},
                           {"device", found.device},
                           {"version", found.version},
                           {"tier", found.tier},
                           {"file", found.file},
                           {"state", lower(word_for(found.state))},
                           {"remark", found.remark},
                           {"next_step", found.next_step}});
  return formatted("{}\n", Value(Dict{{"well", diagnosis.problems.empty()},
                                      {"problems", list_of(diagnosis.problems)},
                                      {"notes", list_of(diagnosis.notes)},
                                      {"facts", std::move(facts)},
                                      {"plugins", std::move(plugins)}})
                               .to_json());
}

}  // namespace gannet::doctor
