// Checks a config and the plugins that it names, and adds the findings.
#include "base/format.h"
#include "config/parse.h"
#include "doctor/child.h"
#include "doctor/config_check.h"
#include "doctor/diagnosis.h"

namespace gannet::doctor {
namespace {

std::string count_text(int64_t count, const std::string& noun, const std::string& nouns) {
  return formatted("{} {}", count, count == 1 ? noun : nouns);
}

// Runs in the child process, since the config may name a plugin that crashes.
std::string checked(const std::string& file) {
  ConfigCheck check;
  try {
    check = check_config(file, {});
  } catch (const Error& error) {
    check.mistakes.push_back(error);
  }
  List mistakes, notices;
  for (const Error& mistake : check.mistakes)
    mistakes.push_back(Dict{{"what", mistake.message()}, {"next_step", mistake.next_step()}});
  for (const std::string& notice : check.notices) notices.push_back(notice);
  return Value(Dict{{"world_size", check.world_size}, {"mistakes", std::move(mistakes)}, {"notices", std::move(notices)}})
      .to_json();
}

}  // namespace

void look_at_config(Diagnosis& diagnosis, const std::string& file) {
  Section& section = diagnosis.section("config");
  const ChildAnswer answer = ask_child([&] { return checked(file); }, std::chrono::seconds(120));
  if (!answer.failure.empty()) {
    section.add(file, "could not be checked");
    return diagnosis.problem(formatted("opening the plugins that {} names: {}", file, answer.failure),
                             "`gannet doctor` without --config shows which plugin it is");
  }
  const Value found = config::parse_value(answer.text);
  const List& mistakes = found.at("mistakes").as_list();
  section.add(file, mistakes.empty()
                        ? formatted("ok for {}", count_text(found.at("world_size").as_int(), "process", "processes"))
                        : formatted("has {}", count_text(static_cast<int64_t>(mistakes.size()), "mistake", "mistakes")));
  for (const Value& mistake : mistakes) diagnosis.problem(mistake.at("what").as_string(), mistake.at("next_step").as_string());
  for (const Value& notice : found.at("notices").as_list()) diagnosis.note(notice.as_string(), "");
}

}  // namespace gannet::doctor
