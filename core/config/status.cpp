#include "config/status.h"

#include <gannet/error.h>

#include <utility>

#include "base/format.h"
#include "base/text.h"
#include "config/document.h"
#include "config/keys.h"
#include "config/mistakes.h"
#include "config/parse.h"

namespace gannet::config {
namespace {

bool is_auto(const Value& value) { return value.is_string() && value.as_string() == "auto"; }

class StatusCheck {
 public:
  StatusCheck(const Document& document, std::vector<Error>* mistakes) : document_(document), mistakes_(mistakes) {
    if (const Value* stage = document.find("/zero_optimization/stage"); stage && stage->is_int()) stage_ = stage->as_int();
    for (const char* path : {"/zero_optimization/offload_optimizer/device", "/zero_optimization/offload_param/device"})
      if (const Value* device = document.find(path); device && device->is_string() && device->as_string() == "nvme")
        has_nvme_ = stage_ > 0;
    for (const char* path : {"/gannet/activation_checkpointing/device", "/gannet/activation_checkpointing/keep"})
      if (const Value* device = document.find(path); device && device->is_string() && device->as_string() == "nvme")
        has_nvme_ = true;
  }

  std::vector<std::string> run() {
    section(document_.root(), "");
    std::vector<std::string> notices;
    for (const auto& [reason, paths] : idle_) notices.push_back(formatted("no effect: {} ({})", join(paths, ", "), reason));
    return notices;
  }

 private:
  void section(const Dict& members, const std::string& path);
  void member(const Key& row, const Value& value);
  bool asks_for_nothing(const Key& row, const Value& value) const;
  void note(const std::string& reason, const std::string& path);

  const Document& document_;
  std::vector<Error>* const mistakes_;
  int64_t stage_ = 0;
  bool has_nvme_ = false;
  std::vector<std::pair<std::string, std::vector<std::string>>> idle_;  // each reason with its paths, in the order of the file
};

void StatusCheck::note(const std::string& reason, const std::string& path) {
  for (auto& [known, paths] : idle_)
    if (known == reason) return paths.push_back(path);
  idle_.push_back({reason, {path}});
}

// Whether the value is the default, null or "auto", or switches the feature off.
bool StatusCheck::asks_for_nothing(const Key& row, const Value& value) const {
  if (value.is_null() || is_auto(value) || value == default_of(row) || (!row.off.empty() && value == parse_value(row.off)))
    return true;
  if (!value.is_dict()) return false;
  if (value.as_dict().empty()) return true;
  const Dict* object = &value.as_dict();  // a compression method has its switch in shared_parameters
  if (const Value* shared = object->find("shared_parameters"); shared && shared->is_dict()) object = &shared->as_dict();
  const Value* enabled = object->find("enabled");
  return enabled && (*enabled == Value(false) || *enabled == Value("false"));
}

void StatusCheck::section(const Dict& members, const std::string& path) {
  // A section that is switched off may have any content.
  if (const Key* enabled = find_key(formatted("{}/enabled", path))) {
    const Value* given = members.find("enabled");
    const bool is_given = given && given->is_bool();
    if (!(is_given ? given->as_bool() : default_of(*enabled).as_bool())) {
      if (is_given) return;
      for (const auto& [key, value] : members.entries()) {
        const Key* row = find_key(formatted("{}/{}", path, key));
        if (!row || !asks_for_nothing(*row, value))
          note(formatted("{}.enabled is not set", dotted(path)), formatted("{}.{}", dotted(path), key));
      }
      return;
    }
    // If the whole section is unsupported, report only its switch.
    if (enabled->status == Status::kUnsupported && is_given && !asks_for_nothing(*enabled, *given)) {
      attempt(mistakes_, [&] { member(*enabled, *given); });
      return;
    }
  }
  for (const auto& [key, value] : members.entries()) {
    if (const Key* row = find_key(path.empty() ? key : formatted("{}/{}", path, key)))
      attempt(mistakes_, [&, &given = value] { member(*row, given); });
  }
}

void StatusCheck::member(const Key& row, const Value& value) {
  if (row.is_section() && value.is_dict()) return section(value.as_dict(), std::string(row.path));
  if (row.status == Status::kActive || asks_for_nothing(row, value)) return;
  const std::string path = formatted("/{}", row.path);
  if (stage_ < 3 && path == "/zero_optimization/offload_optimizer/ratio") return;  // resolve refuses it
  if (row.status == Status::kNoEffect) return note(std::string(row.note), dotted(path));
  if (row.status == Status::kAtZero) return stage_ > 0 ? void() : note("it acts at ZeRO stage 1 and above", dotted(path));
  if (row.status == Status::kWithNvme) return has_nvme_ ? void() : note("it belongs to the nvme offload of ZeRO", dotted(path));
  if (row.status == Status::kAtStage3 || row.status == Status::kNotAtStage3) {
    if (stage_ > 0 && stage_ < 3 && path == "/zero_optimization/offload_param/device") return;  // resolve refuses it
    if (stage_ < 3) return note("it acts at ZeRO stage 3", dotted(path));
    if (row.status == Status::kAtStage3) return;
  }
  const std::string head = formatted("{}: {} = {}", document_.origin_of(path).to_string(), dotted(path),
                                     value.is_dict() ? "{ ... }" : value.to_json());
  const std::string section_name(row.path.substr(0, row.path.find('/')));
  throw Error(ErrorCode::kUnsupported, formatted("{}: Gannet does not implement this: {}", head, row.note),
              formatted("leave it out, or at its default {}; `gannet config keys --all {}` shows what Gannet acts on",
                        row.default_json, section_name));
}

}  // namespace

std::vector<std::string> check_status(const Document& document, std::vector<Error>* mistakes) {
  return StatusCheck(document, mistakes).run();
}

}  // namespace gannet::config
