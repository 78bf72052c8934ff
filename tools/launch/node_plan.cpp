#include "launch/node_plan.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <map>
#include <string_view>

#include "base/format.h"
#include "launch/devices.h"
#include "launch/frames.h"
#include "launch/marked.h"

namespace gannet::launch {
namespace {

template <class Number>
std::string text(Number number) {
  return std::to_string(number);
}

void add(std::vector<std::string>& texts, const std::vector<std::string>& more) {
  texts.push_back(text(more.size()));
  texts.insert(texts.end(), more.begin(), more.end());
}

std::vector<std::string> texts_of(const std::vector<uint32_t>& numbers) {
  std::vector<std::string> texts;
  for (const uint32_t number : numbers) texts.push_back(text(number));
  return texts;
}

std::vector<uint32_t> numbers_in(Unpacker& unpacker) {
  std::vector<uint32_t> numbers;
  for (int64_t left = unpacker.number(); left > 0; --left) numbers.push_back(static_cast<uint32_t>(unpacker.number()));
  return numbers;
}

std::string name_of(const std::string& entry) { return entry.substr(0, entry.find('=')); }

// Whether the variable describes a machine or a login.
bool stays(const std::string& name) {
  constexpr std::array<std::string_view, 24> kNames = {"HOME",
                                                       "USER",
                                                       "LOGNAME",
                                                       "SHELL",
                                                       "MAIL",
                                                       "HOSTNAME",
                                                       "HOST",
                                                       "PWD",
                                                       "OLDPWD",
                                                       "SHLVL",
                                                       "_",
                                                       "DISPLAY",
                                                       "XAUTHORITY",
                                                       "WAYLAND_DISPLAY",
                                                       "WINDOWID",
                                                       "TMPDIR",
                                                       "TMP",
                                                       "TEMP",
                                                       "KRB5CCNAME",
                                                       "NOTIFY_SOCKET",
                                                       "JOURNAL_STREAM",
                                                       "INVOCATION_ID",
                                                       "GANNET_CALL_RECORD",
                                                       kMarkVariable};
  constexpr std::array<std::string_view, 3> kPrefixes = {"SSH_", "XDG_", "DBUS_"};
  return chooses_devices(name) || std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         std::any_of(kPrefixes.begin(), kPrefixes.end(), [&](std::string_view prefix) { return name.rfind(prefix, 0) == 0; });
}

// An empty CUDA_VISIBLE_DEVICES hides all devices, on every machine.
bool hides_devices(const std::string& entry) { return entry.back() == '=' && chooses_devices(name_of(entry)); }

}  // namespace

std::string packed(const NodePlan& plan) {
  const LaunchOptions& options = plan.options;
  std::vector<std::string> texts = {plan.build,
                                    plan.folder,
                                    text(options.procs),
                                    text(options.node.index),
                                    text(options.node.count),
                                    text(static_cast<int>(options.bind_cores_to_rank)),
                                    text(static_cast<int64_t>(options.grace_seconds * 1000)),
                                    text(plan.failure_grace_ms),
                                    text(plan.file_mask)};
  add(texts, texts_of(options.slots));
  add(texts, texts_of(options.node.procs_of_nodes));
  add(texts, options.command);
  add(texts, options.environment);
  return packed(texts);
}

NodePlan node_plan_in(const std::string& body) {
  Unpacker unpacker(body);
  NodePlan plan;
  plan.build = unpacker.text();
  plan.folder = unpacker.text();
  plan.options.procs = static_cast<uint32_t>(unpacker.number());
  plan.options.node.index = static_cast<uint32_t>(unpacker.number());
  plan.options.node.count = static_cast<uint32_t>(unpacker.number());
  plan.options.bind_cores_to_rank = unpacker.number() != 0;
  plan.options.grace_seconds = static_cast<double>(unpacker.number()) / 1000;
  plan.failure_grace_ms = unpacker.number();
  plan.file_mask = static_cast<uint32_t>(unpacker.number());
  plan.options.slots = numbers_in(unpacker);
  plan.options.node.procs_of_nodes = numbers_in(unpacker);
  plan.options.command = unpacker.texts();
  plan.options.environment = unpacker.texts();
  return plan;
}

std::string packed(const Readiness& readiness) { return packed(std::vector<std::string>{readiness.place, readiness.machine}); }

Readiness readiness_in(const std::string& body) {
  Unpacker unpacker(body);
  Readiness readiness;
  readiness.place = unpacker.text();
  readiness.machine = unpacker.text();
  return readiness;
}

std::string packed(const Refusal& refusal) { return packed(std::vector<std::string>{text(refusal.code), refusal.why}); }

Refusal refusal_in(const std::string& body) {
  Unpacker unpacker(body);
  const int code = static_cast<int>(unpacker.number());
  return {code, unpacker.text()};
}

std::string packed(const Go& go) {
  return packed(std::vector<std::string>{text(go.restart), go.place, go.address, text(go.port)});
}

Go go_in(const std::string& body) {
  Unpacker unpacker(body);
  Go go;
  go.restart = static_cast<uint32_t>(unpacker.number());
  go.place = unpacker.text();
  go.address = unpacker.text();
  go.port = static_cast<uint32_t>(unpacker.number());
  return go;
}

std::string packed(const AttemptOutcome& outcome) {
  return packed(std::vector<std::string>{text(outcome.code), text(static_cast<int>(outcome.failed)),
                                         text(static_cast<int>(outcome.was_stopped)), text(outcome.weight), outcome.why,
                                         outcome.no_restart, outcome.report});
}

AttemptOutcome outcome_in(const std::string& body) {
  Unpacker unpacker(body);
  AttemptOutcome outcome;
  outcome.code = static_cast<int>(unpacker.number());
  outcome.failed = unpacker.number() != 0;
  outcome.was_stopped = unpacker.number() != 0;
  outcome.weight = static_cast<int>(unpacker.number());
  outcome.why = unpacker.text();
  outcome.no_restart = unpacker.text();
  outcome.report = unpacker.text();
  return outcome;
}

std::string build_id() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  uint64_t sum = 14695981039346656037u;  // FNV-1a: http://www.isthe.com/chongo/tech/comp/fnv
  std::array<char, 64 * 1024> part;
  do {
    file.read(part.data(), part.size());
    for (std::streamsize i = 0; i < file.gcount(); ++i)
      sum = (sum ^ static_cast<unsigned char>(part[static_cast<size_t>(i)])) * 1099511628211u;
  } while (file);
  return formatted("{} {}", GANNET_VERSION, sum);
}

std::vector<std::string> environment_to_send(const std::vector<std::string>& environment) {
  std::vector<std::string> sent;
  std::copy_if(environment.begin(), environment.end(), std::back_inserter(sent),
               [](const std::string& entry) { return !stays(name_of(entry)) || hides_devices(entry); });
  return sent;
}

std::vector<std::string> merged_environment(const std::vector<std::string>& own, const std::vector<std::string>& sent) {
  std::map<std::string, std::string> entries;
  for (const auto* list : {&own, &sent})
    for (const std::string& entry : *list) entries[name_of(entry)] = entry;
  std::vector<std::string> merged;
  for (const auto& [name, entry] : entries) merged.push_back(entry);
  return merged;
}

}  // namespace gannet::launch
