#include "report/line.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace gannet::report {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kMaxDepth = 64;            // the deepest nesting, since printing a config's value recurses
constexpr size_t kMaxValueBytes = 2000;  // the longest text that is shown in full
constexpr int64_t kMaxStep = int64_t{1} << 53;

BadLine wrong(const char* name, const char* expected, const OrderedJson& found) {
  return BadLine(std::string("has no ") + expected + " in '" + name + "', but a JSON " + found.type_name());
}

const OrderedJson* member(const OrderedJson& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// JSON has no NaN: it is written as a string.
double number_of(const OrderedJson& value, const char* name) {
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
    if (text == "Infinity") return std::numeric_limits<double>::infinity();
    if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  }
  throw wrong(name, "number", value);
}

std::optional<double> number(const OrderedJson& object, const char* name) {
  const OrderedJson* value = member(object, name);
  return value ? std::optional(number_of(*value, name)) : std::nullopt;
}

double finite(const OrderedJson& object, const char* name) {
  const double value = number(object, name).value_or(0);
  return std::isfinite(value) ? value : 0;
}

int64_t integer(const OrderedJson& object, const char* name) {
  const OrderedJson* value = member(object, name);
  if (!value) return 0;
  if (value->is_number_integer()) return value->get<int64_t>();
  throw wrong(name, "integer", *value);
}

std::string clipped(std::string text) {
  if (text.size() <= kMaxValueBytes) return text;
  size_t end = kMaxValueBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // do not cut inside a character
  return text.substr(0, end) + " ... (" + std::to_string(text.size()) + " bytes in all)";
}

std::string text(const OrderedJson& object, const char* name) {
  const OrderedJson* value = member(object, name);
  if (!value) return "";
  if (value->is_string()) return clipped(value->get<std::string>());
  throw wrong(name, "text", *value);
}

const OrderedJson& list(const OrderedJson& object, const char* name) {
  static const OrderedJson* const kEmpty = new OrderedJson(OrderedJson::array());
  const OrderedJson* value = member(object, name);
  if (!value) return *kEmpty;
  if (!value->is_array()) throw wrong(name, "list", *value);
  return *value;
}

std::vector<std::pair<std::string, double>> named(const OrderedJson& object, const char* name) {
  std::vector<std::pair<std::string, double>> all;
  if (const OrderedJson* value = member(object, name)) {
    if (!value->is_object()) throw wrong(name, "object", *value);
    for (const auto& [key, one] : value->items())
      if (!one.is_null()) all.emplace_back(key, number_of(one, name));
  }
  return all;
}

std::string shown(const OrderedJson& value) {
  return clipped(value.is_string() ? value.get<std::string>()
                                   : value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
}

std::string machine_value(const std::string& key, const OrderedJson& value) {
  if (key.ends_with("_bytes") && value.is_number()) return size_text(static_cast<uint64_t>(std::max(0.0, value.get<double>())));
  if (!value.is_array()) return shown(value);
  std::vector<std::string> parts;
  for (const OrderedJson& part : value) parts.push_back(shown(part));
  return clipped(join(parts, ", "));
}

RunRecord run_of(const OrderedJson& line) {
  RunRecord run;
  run.started_at = text(line, "started_at");
  run.gannet = text(line, "gannet");
  run.dtype = text(line, "dtype");
  run.world_size = integer(line, "world_size");
  run.parameters = integer(line, "parameters");
  run.zero_stage = integer(line, "zero_stage");
  run.train_batch_size = integer(line, "train_batch_size");
  run.micro_batch_size = integer(line, "micro_batch_size");
  run.accumulation_steps = integer(line, "gradient_accumulation_steps");
  for (const OrderedJson& row : list(line, "config")) {
    if (!row.is_object()) throw wrong("config", "list of objects", row);
    const auto value = row.find("value");
    run.config.push_back({text(row, "key"),
                          value == row.end() ? "" : clipped(value->dump(-1, ' ', false, OrderedJson::error_handler_t::replace)),
                          text(row, "origin")});
  }
  for (const OrderedJson& row : list(line, "plugins")) {
    if (!row.is_object()) throw wrong("plugins", "list of objects", row);
    run.plugins.push_back({text(row, "kind"), text(row, "name"), text(row, "version"), text(row, "file")});
  }
  if (const OrderedJson* machine = member(line, "machine")) {
    if (!machine->is_object()) throw wrong("machine", "object", *machine);
    for (const auto& [key, value] : machine->items())
      if (!value.is_null()) run.machine.emplace_back(key, machine_value(key, value));
  }
  return run;
}

void read_step(const OrderedJson& json, ParsedLine& line) {
  StepRecord& step = line.step;
  if (!member(json, "step")) throw BadLine("is a step record without 'step'");
  step.step = integer(json, "step");
  if (step.step < 0 || step.step > kMaxStep) throw BadLine("has the step " + std::to_string(step.step));
  step.time = finite(json, "time");
  step.loss = number(json, "loss");
  step.grad_norm = number(json, "grad_norm");
  step.loss_scale = number(json, "loss_scale");
  step.seconds = number(json, "seconds");
  step.memory_bytes = number(json, "memory_bytes");
  for (const OrderedJson& lr : list(json, "lr")) step.lr.push_back(number_of(lr, "lr"));
  if (const OrderedJson* applied = member(json, "applied")) {
    if (!applied->is_boolean()) throw wrong("applied", "boolean", *applied);
    step.applied = applied->get<bool>();
  }
  step.reason = text(json, "reason");
  const std::string said = "step " + std::to_string(step.step) + " skipped: ";  // the step is shown next to it, so drop it
  if (step.reason.starts_with(said)) step.reason.erase(0, said.size());
  line.phases = named(json, "phases");
  line.counts = named(json, "counts");
  line.values = named(json, "values");
  line.memory = named(json, "memory");
}

// OrderedJson's own parser accepts any depth, but the code that walks the result recurses.
void check_depth(const std::string& text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (in_string) {
      if (letter == '\\')
        ++i;
      else if (letter == '"')
        in_string = false;
    } else if (letter == '"') {
      in_string = true;
    } else if (letter == '{' || letter == '[') {
      if (++depth > kMaxDepth) throw BadLine("is nested deeper than " + std::to_string(kMaxDepth) + " levels");
    } else if (letter == '}' || letter == ']') {
      --depth;
    }
  }
}

}  // namespace

ParsedLine parse_line(const std::string& text_of_line) {
  check_depth(text_of_line);
  const OrderedJson json = OrderedJson::parse(text_of_line, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) throw BadLine(text_of_line.starts_with("{\"kind\"") ? "was cut short, as by a crash" : "is not JSON");
  if (!json.is_object()) throw BadLine(std::string("is not a JSON object, but a JSON ") + json.type_name());
  if (!member(json, "kind")) throw BadLine("has no 'kind'");
  ParsedLine line;
  const std::string kind = text(json, "kind");
  if (kind == "run") {
    line.kind = ParsedLine::Kind::kRun;
    line.schema = integer(json, "schema");
    if (line.schema <= kSchema)
      line.run = run_of(json);
    else if (json.contains("gannet") && json["gannet"].is_string())
      line.run.gannet = json["gannet"].get<std::string>();
  } else if (kind == "step") {
    line.kind = ParsedLine::Kind::kStep;
    read_step(json, line);
  } else if (kind == "values") {
    line.kind = ParsedLine::Kind::kValues;
    line.step.step = integer(json, "step");
    line.step.time = finite(json, "time");
    line.values = named(json, "values");
  } else if (kind == "event") {
    line.kind = ParsedLine::Kind::kEvent;
    line.event.step = integer(json, "step");
    line.event.time = finite(json, "time");
    line.event.what = text(json, "what");
    line.event.text = text(json, "text");
  }
  return line;
}

}  // namespace gannet::report
