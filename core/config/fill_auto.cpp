// Fills the "auto" values of a config from the training arguments and the facts about the model.
#include <gannet/error.h>
#include <gannet/fill_auto.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/format.h"
#include "base/text.h"
#include "config/document.h"
#include "config/effective.h"
#include "config/lr_schedules.h"
#include "config/parse.h"

namespace gannet {
namespace {

// Reads a number, which may be in quotes.
std::optional<double> number_in(const Value& value) {
  if (value.is_number()) return value.as_number();
  if (!value.is_string()) return std::nullopt;
  const std::string& text = value.as_string();
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

bool same_value(const Value& a, const Value& b) {
  if (a.is_list() && b.is_list())
    return std::equal(a.as_list().begin(), a.as_list().end(), b.as_list().begin(), b.as_list().end(), same_value);
  const auto left = number_in(a), right = number_in(b);
  return left && right ? *left == *right : a == b;
}

// The origin of an optimizer entry that the Trainer builds from its arguments before it fills the
// other values.
constexpr const char* kOfArguments = "training arguments";

class AutoFiller {
 public:
  AutoFiller(Config& config, const Dict& arguments, const AutoFacts& facts)
      : config_(config), arguments_(arguments), facts_(facts) {
    steps_ = facts.num_training_steps;
    if (const int64_t max_steps = integer("max_steps", -1); !steps_ && max_steps > 0) steps_ = max_steps;
  }

  void sizes() { from_hidden_size(); }
  void run() {
    batch();
    match("gradient_clipping", number("max_grad_norm", 1.0), {"max_grad_norm"});
    optimizer();
    precision();
    from_hidden_size();
    scheduler();
    if (is_given("save_on_each_node")) set("checkpoint/use_node_local_storage", flag("save_on_each_node"), "save_on_each_node");
    if (conflicts_.empty()) return;
    throw Error(ErrorCode::kConfig,
                formatted("the config and the arguments contradict each other:\n  {}", join(conflicts_, "\n  ")),
                "make each pair equal, or write \"auto\" in the config: the argument then fills it");
  }

 private:
  using Names = std::vector<std::string>;

  bool is_given(const std::string& name) const {
    const Value* value = arguments_.find(name);
    return value && !value->is_null();
  }
  [[noreturn]] void wrong(const std::string& name, const char* wanted) const {
    throw Error(ErrorCode::kArgument,
                formatted("argument {} must be {}, found {}", name, wanted, arguments_.find(name)->to_json()),
                "give it the value that Hugging Face's argument of this name takes");
  }
  double number(const std::string& name, double otherwise) const {
    if (!is_given(name)) return otherwise;
    const auto found = number_in(*arguments_.find(name));
    if (!found || !std::isfinite(*found)) wrong(name, "a number");
    return *found;
  }
  int64_t integer(const std::string& name, int64_t otherwise) const {
    const double found = number(name, static_cast<double>(otherwise));
    if (found != std::floor(found) || std::abs(found) > 9e15) wrong(name, "an integer");
    return static_cast<int64_t>(found);
  }
  bool flag(const std::string& name) const {
    if (!is_given(name)) return false;
    if (!arguments_.find(name)->is_bool()) wrong(name, "true or false");
    return arguments_.find(name)->as_bool();
  }
  std::string text(const std::string& name, const std::string& otherwise) const {
    if (!is_given(name)) return otherwise;
    if (!arguments_.find(name)->is_string()) wrong(name, "a text");
    return arguments_.find(name)->as_string();
  }

  const Value* find(const std::string& path) const {
    return config_.document() ? config_.document()->find(formatted("/{}", path)) : nullptr;
  }
  bool is_auto(const std::string& path) const { return find(path) && config::is_auto(*find(path)); }

  void set(const std::string& path, const Value& value, const std::string& from) {
    config_.fill(path, value, formatted("auto: {}", from));
  }
  // Fills an "auto". If the config has a value instead and one of the named arguments was given,
  // the two values must be equal.
  void match(const std::string& path, const Value& value, const Names& names) {
    const Value* found = find(path);
    if (!found || found->is_null()) return;
    if (config::is_auto(*found)) return set(path, value, join(names, ", "));
    if (same_value(*found, value) || std::none_of(names.begin(), names.end(), [&](const auto& name) { return is_given(name); }))
      return;
    conflicts_.push_back(formatted("{} = {} ({}), but {} {}", config::dotted(path), found->to_json(),
                                   config_.document()->origin_of(formatted("/{}", path)).to_string(), who_gives(names),
                                   value.to_json()));
  }
  // Names the source of a value: "bf16 (its default) and bf16_full_eval together give". A source
  // that is not an argument ("world size 2") never gets the note "(its default)".
  std::string who_gives(const Names& names) const {
    std::vector<std::string> parts;
    for (const std::string& name : names)
      parts.push_back(is_given(name) || name.find(' ') != std::string::npos ? name : formatted("{} (its default)", name));
    const std::string last = parts.back();
    parts.pop_back();
    return parts.empty() ? formatted("{} gives", last) : formatted("{} and {} together give", join(parts, ", "), last);
  }
  // Batch sizes are required, so the arguments also supply the ones that the config lacks.
  void match_or_add(const std::string& path, const Value& value, const std::string& name) {
    if (!find(path) || find(path)->is_null()) return set(path, value, name);
    match(path, value, {name});
  }

  void batch() {
    const int64_t micro = integer("per_device_train_batch_size", 8);
    const int64_t accumulation = integer("gradient_accumulation_steps", 1);
    // If the config gives two of the sizes, they determine the third, and the arguments must not
    // supply it.
    const auto has = [&](const char* path) { return find(path) && !find(path)->is_null() && !is_auto(path); };
    const bool has_train = has("train_batch_size"), has_micro = has("train_micro_batch_size_per_gpu");
    match("train_batch_size", micro * accumulation * facts_.world_size,
          {"per_device_train_batch_size", "gradient_accumulation_steps", formatted("world size {}", facts_.world_size)});
    if (!has_train || is_given("per_device_train_batch_size"))
      match_or_add("train_micro_batch_size_per_gpu", micro, "per_device_train_batch_size");
    else if (!has_micro)
      match("train_micro_batch_size_per_gpu", micro, {"per_device_train_batch_size"});
    if (!has_train || is_given("gradient_accumulation_steps"))
      match_or_add("gradient_accumulation_steps", accumulation, "gradient_accumulation_steps");
    else
      match("gradient_accumulation_steps", accumulation, {"gradient_accumulation_steps"});
  }

  void optimizer() {
    const Value lr = number("learning_rate", 5e-5), eps = number("adam_epsilon", 1e-8), decay = number("weight_decay", 0);
    const Value betas = List{number("adam_beta1", 0.9), number("adam_beta2", 0.999)};
    if (!find("optimizer")) {
      if (facts_.add_missing)
        set("optimizer",
            Dict{{"type", "AdamW"}, {"params", Dict{{"lr", lr}, {"betas", betas}, {"eps", eps}, {"weight_decay", decay}}}},
            "learning_rate, adam_beta1, adam_beta2, adam_epsilon, weight_decay");
      return;
    }
    match("optimizer/params/lr", lr, {"learning_rate"});
    match("optimizer/params/betas", betas, {"adam_beta1", "adam_beta2"});
    match("optimizer/params/eps", eps, {"adam_epsilon"});
    match("optimizer/params/weight_decay", decay, {"weight_decay"});
  }

  void precision() {
    const std::string backend = text("fp16_backend", "auto");
    const bool is_apex = backend == "apex";
    match("fp16/enabled", (flag("fp16") && !is_apex) || flag("fp16_full_eval"), {"fp16", "fp16_full_eval", "fp16_backend"});
    match("bf16/enabled", flag("bf16") || flag("bf16_full_eval"), {"bf16", "bf16_full_eval"});
    match("amp/enabled", flag("fp16") && is_apex, {"fp16", "fp16_backend"});
    match("amp/opt_level", text("fp16_opt_level", "O1"), {"fp16_opt_level"});
  }

  void from_hidden_size() {
    if (!facts_.hidden_size) return;
    const int64_t h = *facts_.hidden_size;
    if (h < 1 || h > 3'000'000'000)
      throw Error(ErrorCode::kArgument, formatted("a hidden size of {}", h), "give the model's, a positive integer");
    const auto fill = [&](const char* path, int64_t value) {
      if (is_auto(path)) set(path, value, formatted("hidden size {}", h));
    };
    fill("zero_optimization/reduce_bucket_size", h * h);
    // Computed as in Hugging Face: (0.9 h) h in double precision, truncated.
    const double width = static_cast<double>(h);
    fill("zero_optimization/stage3_prefetch_bucket_size", static_cast<int64_t>(0.9 * width * width));
    fill("zero_optimization/stage3_param_persistence_threshold", 10 * h);
  }

  bool steps_come_later() const { return !steps_ && facts_.steps_are_known_later; }

  // A warmup_steps below 1 is a fraction of the run, as in transformers 5.
  std::optional<int64_t> warmup_steps() const {
    const double steps = number("warmup_steps", 0), ratio = number("warmup_ratio", 0);
    if (steps < 0 || ratio < 0 || ratio > 1) wrong(steps < 0 ? "warmup_steps" : "warmup_ratio", "0 or above, a ratio at most 1");
    if (steps >= 1) return static_cast<int64_t>(steps);
    const double share = steps > 0 ? steps : ratio;
    if (share == 0) return 0;
    if (!steps_) return std::nullopt;
    return static_cast<int64_t>(std::ceil(share * static_cast<double>(*steps_)));
  }

  void scheduler() {
    const double lr = number("learning_rate", 5e-5);
    const auto warmup = warmup_steps();
    if (find("scheduler")) {
      if (is_auto("scheduler/params/warmup_min_lr")) set("scheduler/params/warmup_min_lr", 0.0, "0");
      // If no argument gives the learning rate, it is taken from the config's own optimizer: a
      // warm-up to a different rate would be a surprise.
      const Value* const own = find("optimizer/params/lr");
      if (const auto rate = own ? number_in(*own) : std::nullopt; rate && !is_given("learning_rate"))
        match("scheduler/params/warmup_max_lr", *rate, {"optimizer.params.lr"});
      else
        match("scheduler/params/warmup_max_lr", lr, {"learning_rate"});
      // DeepSpeed's schedules warm up for at least one update, so 0 is raised to 1, as in
      // transformers.
      const Value* const plugin = find("scheduler/type");
      const bool takes_none = plugin && plugin->is_string() && config::may_start_without_warmup(plugin->as_string());
      if (warmup)
        match("scheduler/params/warmup_num_steps", takes_none ? *warmup : std::max<int64_t>(1, *warmup),
              {"warmup_steps", "warmup_ratio"});
      if (steps_)
        match("scheduler/params/total_num_steps", *steps_,
              {facts_.num_training_steps ? "number of training steps" : "max_steps"});
      if (steps_come_later()) stand_in(warmup);
      return;
    }
    if (!facts_.add_missing) return;
    add_scheduler(text("lr_scheduler_type", "linear"), warmup);
  }

  void stand_in(std::optional<int64_t> warmup) {
    if (!warmup && is_auto("scheduler/params/warmup_num_steps"))
      config_.fill("scheduler/params/warmup_num_steps", kStandIn / 2, kKnownLater);
    if (is_auto("scheduler/params/total_num_steps")) config_.fill("scheduler/params/total_num_steps", kStandIn, kKnownLater);
  }

  // The scheduler plugins start from the optimizer's learning rate, which is the argument
  // learning_rate unless the config gives a different one.
  void add_scheduler(const std::string& type, std::optional<int64_t> warmup) {
    const config::LrScheduleType& schedule = config::lr_schedule_type(type);
    const Dict kwargs = lr_scheduler_kwargs(schedule);
    const bool has_end = schedule.has_end && !kwargs.find("num_stable_steps");
    const bool is_known = (!schedule.warms_up || warmup) && (!has_end || steps_);
    if (!is_known && !steps_come_later())
      throw Error(ErrorCode::kArgument, formatted("lr_scheduler_type {} needs the number of training steps", in_quotes(type)),
                  "give max_steps, or a scheduler entry in the config");
    Dict params;
    if (schedule.plugin == "WarmupLR" || schedule.plugin == "WarmupDecayLR")
      params = {{"warmup_min_lr", 0.0}, {"warmup_max_lr", nullptr}, {"warmup_type", "linear"}, {"repeat_first_step", false}};
    if (schedule.warms_up) params["warmup_num_steps"] = warmup ? Value(*warmup) : Value("auto");
    if (has_end) params["total_num_steps"] = steps_ ? Value(*steps_) : Value("auto");
    set("scheduler", Dict{{"type", std::string(schedule.plugin)}, {"params", std::move(params)}},
        is_given("lr_scheduler_type") ? "lr_scheduler_type" : "lr_scheduler_type's default");
    for (const auto& [name, value] : kwargs.entries()) set(formatted("scheduler/params/{}", name), value, "lr_scheduler_kwargs");
    if (steps_come_later()) stand_in(warmup);
  }

  Dict lr_scheduler_kwargs(const config::LrScheduleType& schedule) const {
    if (!is_given("lr_scheduler_kwargs")) return {};
    Value given = *arguments_.find("lr_scheduler_kwargs");
    if (given.is_string()) given = config::parse_value(given.as_string());
    if (!given.is_dict()) wrong("lr_scheduler_kwargs", "a dictionary");
    check_lr_schedule(std::string(schedule.type), given.as_dict());
    Dict kwargs;
    for (const auto& [name, value] : given.as_dict().entries())
      if (!value.is_null()) kwargs[name] = value;  // null keeps the default
    return kwargs;
  }

  static constexpr int64_t kStandIn = 1'000'000'000;

  Config& config_;
  const Dict& arguments_;
  const AutoFacts& facts_;
  std::optional<int64_t> steps_;  // the number of updates in the run
  std::vector<std::string> conflicts_;
};

}  // namespace

Config& fill_auto(Config& config, const Dict& arguments, const AutoFacts& facts) {
  Config filled = config;  // if the arguments do not fit, the caller's config is unchanged
  AutoFiller(filled, arguments, facts).run();
  return config = std::move(filled);
}

std::vector<std::string> arguments_without_effect(const Config& config, const Dict& arguments) {
  const config::Document* const document = config.document().get();
  if (!document) return {};
  const auto has = [&](const std::string& path) { return document->find(formatted("/{}", path)) != nullptr; };
  const auto is_own = [&](const std::string& section) {  // from the config, not built from the arguments
    const std::string path = formatted("/{}/type", section);
    const std::string origin = document->find(path) ? document->origin_of(path).to_string() : "auto";
    return !origin.starts_with("auto") && origin != kOfArguments;
  };
  struct Row {
    const char *argument, *section, *key;
  };
  static constexpr Row kRows[] = {
      {"max_grad_norm", "", "gradient_clipping"},
      {"learning_rate", "optimizer", "params/lr"},
      {"adam_beta1", "optimizer", "params/betas"},
      {"adam_beta2", "optimizer", "params/betas"},
      {"adam_epsilon", "optimizer", "params/eps"},
      {"weight_decay", "optimizer", "params/weight_decay"},
      {"optim", "optimizer", ""},
      {"warmup_steps", "scheduler", "params/warmup_num_steps"},
      {"lr_scheduler_type", "scheduler", ""},
      {"lr_scheduler_kwargs", "scheduler", ""},
  };
  std::vector<std::string> lines;
  for (const Row& row : kRows) {
    const std::string section = row.section, key = row.key;
    const Value* const given = arguments.find(row.argument);
    if (!given || given->is_null() || (!section.empty() && !is_own(section))) continue;
    if (key.empty()) {
      lines.push_back(formatted("no effect: argument {} (the config has its own {} entry)", row.argument, section));
    } else if (const std::string path = section.empty() ? key : formatted("{}/{}", section, key); !has(path)) {
      lines.push_back(
          formatted("no effect: argument {} (the config has no {}: write \"auto\" there)", row.argument, config::dotted(path)));
    }
  }
  return lines;
}

Config& fill_auto_sizes(Config& config, int64_t hidden_size) {
  AutoFiller(config, {}, {.hidden_size = hidden_size}).sizes();
  return config;
}

void check_lr_schedule(const std::string& type, const Dict& kwargs) {
  const config::LrScheduleType& schedule = config::lr_schedule_type(type);
  for (const auto& [name, value] : kwargs.entries())
    if (std::find(schedule.kwargs.begin(), schedule.kwargs.end(), name) == schedule.kwargs.end())
      throw Error(ErrorCode::kArgument,
                  formatted("lr_scheduler_kwargs: lr_scheduler_type {} has no {}{}", schedule.type, in_quotes(name),
                            did_you_mean(name, schedule.kwargs)),
                  schedule.kwargs.empty() ? "it takes none: leave lr_scheduler_kwargs out"
                                          : formatted("it takes {}", join(schedule.kwargs, ", ")));
}

std::optional<int64_t> hidden_size_of(const Dict& model_config) {
  for (const char* name : {"hidden_size", "n_embd", "d_model"})
    if (const Value* value = model_config.find(name); value && value->is_int()) return value->as_int();
  if (const Value* sizes = model_config.find("hidden_sizes"); sizes && sizes->is_list()) {
    std::optional<int64_t> largest;
    for (const Value& size : sizes->as_list())
      if (size.is_int() && size.as_int() > largest.value_or(0)) largest = size.as_int();
    if (largest) return largest;
  }
  const Value* text = model_config.find("text_config");
  return text && text->is_dict() ? hidden_size_of(text->as_dict()) : std::nullopt;
}

}  // namespace gannet
