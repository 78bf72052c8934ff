#include "config/advice.h"

#include <algorithm>
#include <vector>

#include "base/format.h"
#include "base/text.h"
#include "config/document.h"
#include "config/keys.h"

namespace gannet::config {
namespace {

std::string parent_of(const Key& key) {
  return std::string(key.path.substr(0, key.path.size() - std::min(key.path.size(), key.name().size() + 1)));
}

// Optimizer and scheduler params that users put in the wrong section. The key table does not list
// them.
struct MisplacedParam {
  const char* name;
  const char* advice;
};
constexpr MisplacedParam kMisplaced[] = {
    {"lr", "it belongs in optimizer.params"},
    {"learning_rate", "write it as 'lr' in optimizer.params"},
    {"betas", "it belongs in optimizer.params"},
    {"eps", "it belongs in optimizer.params"},
    {"weight_decay", "it belongs in optimizer.params"},
    {"momentum", "it belongs in optimizer.params"},
    {"warmup_min_lr", "it belongs in scheduler.params"},
    {"warmup_max_lr", "it belongs in scheduler.params"},
    {"warmup_num_steps", "it belongs in scheduler.params"},
    {"warmup_type", "it belongs in scheduler.params"},
    {"total_num_steps", "it belongs in scheduler.params"},
};

// Names that docs and other trainers use for a key, and its path in Gannet's config. Edit distance
// does not find these keys: "bfp16" is as close to fp16 as to bf16.
struct OtherName {
  const char* name;
  const char* path;
};
constexpr OtherName kOtherNames[] = {
    {"bfp16", "bf16"},
    {"float16", "fp16"},
    {"half", "fp16"},
    {"check_overflow", "bf16/check_grad_overflow"},
    {"init_scale", "fp16/initial_scale_power"},
    {"initial_scale", "fp16/initial_scale_power"},
    {"dynamic_loss_scale", "fp16/loss_scale"},
    {"batch_size", "train_batch_size"},
    {"micro_batch_size", "train_micro_batch_size_per_gpu"},
    {"micro_batch_size_per_gpu", "train_micro_batch_size_per_gpu"},
    {"per_device_train_batch_size", "train_micro_batch_size_per_gpu"},
    {"per_gpu_train_batch_size", "train_micro_batch_size_per_gpu"},
    {"accumulation_steps", "gradient_accumulation_steps"},
    {"grad_accum_steps", "gradient_accumulation_steps"},
    {"clip", "gradient_clipping"},
    {"clip_grad", "gradient_clipping"},
    {"clip_grad_norm", "gradient_clipping"},
    {"grad_clip", "gradient_clipping"},
    {"max_grad_norm", "gradient_clipping"},
    {"logging_steps", "steps_per_print"},
    {"log_interval", "steps_per_print"},
    {"optim", "optimizer"},
    {"lr_scheduler", "scheduler"},
    {"zero", "zero_optimization"},
    {"zero_stage", "zero_optimization/stage"},
};

std::string did_you_mean(const Key& row, const std::string& section) {
  const std::string parent = parent_of(row);
  return formatted("; did you mean {}{}?", in_quotes(row.name()), parent == section ? "" : formatted(" {}", place_of(parent)));
}

// Finds the row of a dotted path that was written as one key ("fp16.loss_scale"), in the form that
// --set accepts.
const Key* row_of_path(const std::string& key, const std::string& section) {
  if (key.find('.') == std::string::npos) return nullptr;
  std::string path = (section.empty() ? "" : formatted("{}/", section)) + key;
  std::replace(path.begin(), path.end(), '.', '/');
  if (const Key* row = find_key(path)) return row;
  const std::string last = path.substr(path.rfind('/') + 1);
  for (const auto& [name, meant] : kOtherNames)
    if (last == name) return find_key(meant);
  return nullptr;
}

// Advice on an fp16 key in the section bf16, or the reverse. The key has no equivalent in the other
// section, so the advice is to leave it out.
std::string advice_between_precisions(const std::string& key, const std::string& section) {
  if (section == "bf16" && find_key(formatted("fp16/{}", key)))
    return "; bf16 has the range of fp32 and no loss scale, which this key of fp16 sets: leave it out";
  if (section == "fp16" && find_key(formatted("bf16/{}", key)))
    return formatted("; it is a key of bf16{}: leave it out",
                     key == "check_grad_overflow" ? "; fp16 checks every gradient for overflow" : "");
  return "";
}

std::string advice_of_other_names(const std::string& key, const std::string& section) {
  for (const auto& [name, path] : kOtherNames)
    if (lower(key) == name) return did_you_mean(*find_key(path), section);
  return "";
}

// The names in a section that the user may have meant by a key. For a key of at most four letters,
// only close names are kept: "step" is not "seed".
std::vector<std::string> names_in(const std::string& section, const std::string& key) {
  std::vector<std::string> names;
  for (const Key* row : members_of(section)) {
    names.emplace_back(row->name());
    if (!row->alias.empty()) names.emplace_back(row->alias);
  }
  const std::string folded = lower(key);
  if (key.size() <= 4)
    std::erase_if(names, [&](const auto& name) { return !name.starts_with(folded) && edit_distance(folded, name) > 1; });
  return names;
}

// Whether the key is a letter or two away from a name in the same section. Such a typo is likelier
// than a key from another section.
bool is_slip(const std::string& key, const std::vector<std::string>& names) {
  const auto near = nearest(key, names);
  return !near.empty() && edit_distance(lower(key), near.front()) <= std::min<size_t>(2, key.size() / 3);
}

}  // namespace

std::string place_of(std::string_view section) {
  return section.empty() ? "at the top level" : formatted("in {}", dotted(section));
}

std::string advice_for(const std::string& key, const std::string& section) {
  if (const std::string advice = advice_between_precisions(key, section); !advice.empty()) return advice;
  if (key == "name" && find_key(formatted("{}/type", section))) return "; did you mean 'type'?";
  const std::vector<std::string> here = names_in(section, key);
  const std::string near_here = gannet::did_you_mean(key, here), other = advice_of_other_names(key, section);
  if (other.empty() && is_slip(key, here)) return near_here;
  std::vector<const Key*> elsewhere = keys_named(key);
  const auto is_active = [](const Key* row) { return is_read(row->status); };
  if (std::any_of(elsewhere.begin(), elsewhere.end(), is_active))
    std::erase_if(elsewhere, [&](const Key* row) { return !is_active(row); });
  if (!elsewhere.empty() && elsewhere.size() <= 2) {
    std::vector<std::string> places;
    for (const Key* row : elsewhere) places.push_back(place_of(parent_of(*row)));
    return formatted("; it belongs {}", join(places, " or "));
  }
  for (const auto& [name, advice] : kMisplaced)
    if (key == name) return std::string("; ") + advice;
  if (!other.empty()) return other;
  if (const Key* row = row_of_path(key, section)) return did_you_mean(*row, section);
  if (!near_here.empty() || !elsewhere.empty()) return near_here;  // too many sections have the key to suggest one of them
  if (key.size() < 6) return "";                                   // short words are close to too many names
  std::vector<std::string> names;
  for (const Key* row : all_keys()) names.emplace_back(row->name());
  const auto near = nearest(key, names);
  const auto rows = near.empty() ? std::vector<const Key*>() : keys_named(near.front());
  return rows.empty() ? "" : did_you_mean(*rows.front(), section);
}

}  // namespace gannet::config
