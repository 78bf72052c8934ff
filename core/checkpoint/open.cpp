#include <gannet/error.h>

#include <algorithm>

#include "base/format.h"
#include "base/text.h"
#include "checkpoint/catalog.h"
#include "checkpoint/opened_state.h"
#include "files/io.h"
#include "files/known_folder.h"
#include "files/weight_files.h"

namespace gannet::checkpoint {
namespace {

constexpr const char* kListAdvice = "`gannet checkpoint list` shows what is in a folder";

Opened opened(const std::string& path, const std::string& tag, std::vector<std::string> notes) {
  auto state = std::make_shared<Opened::State>();
  state->path = path;
  state->tag = tag;
  state->manifest = inspect(path);
  state->notes = std::move(notes);
  for (const TensorEntry& tensor : state->manifest.tensors) {
    state->index.emplace(tensor.info.name, state->tensors.size());
    state->tensors.push_back(tensor.info);
  }
  return Opened(std::move(state));
}

std::vector<std::string> tags_of(const std::vector<FoundCheckpoint>& all) {
  std::vector<std::string> tags;
  for (const FoundCheckpoint& found : all) tags.push_back(found.tag);
  return tags;
}

const FoundCheckpoint* find(const std::vector<FoundCheckpoint>& all, const std::string& tag) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const FoundCheckpoint& one) { return one.tag == tag; });
  return found == all.end() ? nullptr : &*found;
}

bool is_avoided(const OpenOptions& options, const std::string& tag) {
  return std::find(options.avoid.begin(), options.avoid.end(), tag) != options.avoid.end();
}

// Returns why the checkpoint cannot be used; "" if it can.
std::string problem_of(const FoundCheckpoint& found, const OpenOptions& options) {
  if (is_avoided(options, found.tag)) return "it turned out to be damaged while it was read";
  return found.problem ? found.problem->message() : "";
}

bool holds_deepspeed(const std::string& path) {
  try {
    return files::kind_of(formatted("{}/mp_rank_00_model_states.pt", path)).exists ||
           files::kind_of(formatted("{}/zero_pp_rank_0_mp_rank_00_model_states.pt", path)).exists;
  } catch (const Error&) {
    return false;  // no permission to search the folder
  }
}

// Notes about a usable checkpoint named by `latest`: reasons to doubt that choice.
std::vector<std::string> doubts(const LatestTag& latest, const FoundCheckpoint& named, const std::vector<FoundCheckpoint>& all,
                                const OpenOptions& options) {
  std::vector<std::string> notes;
  if (!latest.is_checked)
    notes.push_back(formatted("`latest` has no checksum, so that it may have been cut, or written by hand; used {}", named.tag));
  for (const FoundCheckpoint& found : all) {  // newest first
    if (&found == &named || found.sequence <= named.sequence) break;
    if (!problem_of(found, options).empty()) continue;
    notes.push_back(formatted("'{}' is newer and complete, and `latest` names another; used {}", found.tag, named.tag));
    break;
  }
  return notes;
}

[[noreturn]] void no_checkpoint(const std::string& folder) {
  if (files::kind_of(formatted("{}/{}", folder, kManifestName)).exists)
    throw Error(ErrorCode::kNotFound, formatted("{} is itself a checkpoint, not a folder of checkpoints", folder),
                formatted("give the folder that it lies in, and '{}' as the tag", files::last_name(folder)));
  try {
    files::refuse_known_folder(folder);
  } catch (const Error& known) {  // there is no checkpoint: a load with if_present starts from scratch
    throw Error(ErrorCode::kNotFound, known.message(), known.next_step());
  }
  if (holds_deepspeed(folder))
    throw Error(ErrorCode::kNotFound, formatted("{} is a checkpoint of DeepSpeed", folder),
                formatted("`gannet checkpoint import {} OUT` reads it", folder));
  if (files::is_weights_folder(folder))
    throw Error(ErrorCode::kNotFound, formatted("{} holds a model's weights, not a checkpoint", folder),
                "load_weights, from_pretrained, `gannet checkpoint show` and `gannet checkpoint import` read them");
  std::string also;
  for (const std::string& name : files::names_in(folder)) {
    if (name.front() == '.' && name.find(".tmp-") != std::string::npos) also = ", only a save that was not finished";
    if (files::kind_of(formatted("{}/{}", folder, name)).is_folder && holds_deepspeed(formatted("{}/{}", folder, name)))
      also = formatted(", only one of DeepSpeed's ({}), which `gannet checkpoint import` reads", name);
  }
  throw Error(ErrorCode::kNotFound, formatted("there is no checkpoint in {}{}", folder, also),
              "check the path; checkpoints are in <folder>/<tag>/");
}

Opened open_tag(const std::string& folder, const OpenOptions& options, const std::vector<FoundCheckpoint>& all) {
  const FoundCheckpoint* found = find(all, options.tag);
  if (!found) {
    const std::string place = formatted("{}/{}", folder, options.tag);
    if (tag_fault(options.tag).empty() && files::kind_of(place).is_folder)
      throw Error(ErrorCode::kCorrupt, formatted("{} is not a checkpoint of Gannet: {} is missing", place, kManifestName),
                  kListAdvice);
    std::vector<std::string> near = nearest(options.tag, tags_of(all), 3);
    const std::string what = near.empty() ? "the newest are " : "the nearest are ";
    if (near.empty()) near = tags_of(all);
    near.resize(std::min<size_t>(near.size(), 3));
    throw Error(ErrorCode::kNotFound,
                formatted("there is no checkpoint '{}' in {}; {}{}", options.tag, folder, what, join(near, ", ")), kListAdvice);
  }
  const std::string problem = problem_of(*found, options);
  if (problem.empty()) return opened(found->path, found->tag, {});
  throw Error(found->problem ? found->problem->code() : ErrorCode::kCorrupt, formatted("{}/{}: {}", folder, options.tag, problem),
              found->problem && !found->problem->next_step().empty() ? found->problem->next_step() : kListAdvice);
}

}  // namespace

Opened open(const std::string& folder, const OpenOptions& options) {
  const std::vector<FoundCheckpoint> all = scan(folder);
  if (all.empty()) no_checkpoint(folder);
  if (!options.tag.empty()) return open_tag(folder, options, all);

  const LatestTag latest = read_latest(folder);
  const FoundCheckpoint* named = latest.tag.empty() ? nullptr : find(all, latest.tag);
  if (named && problem_of(*named, options).empty()) return opened(named->path, named->tag, doubts(latest, *named, all, options));
  // A checkpoint in a newer format is complete. Silently falling back to an older one would lose
  // the training since then.
  if (named && named->problem && named->problem->code() == ErrorCode::kUnsupported) throw *named->problem;

  std::vector<std::string> reasons;
  if (!latest.problem.empty())
    reasons.push_back(latest.problem);
  else if (!named)
    reasons.push_back(formatted("`latest` names '{}', which is not there", latest.tag));
  const FoundCheckpoint* chosen = nullptr;
  for (const FoundCheckpoint& found : all) {
    const std::string problem = problem_of(found, options);
    if (problem.empty() && !chosen) chosen = &found;
    // Names the broken checkpoints that would have been preferred to the chosen one. Those without
    // a readable manifest may have been among them.
    if (!problem.empty() && (!chosen || found.sequence < 0 || &found == named))
      reasons.push_back(formatted("{}: {}", found.tag, problem));
  }
  if (!chosen) {
    const bool newer = std::all_of(all.begin(), all.end(), [](const FoundCheckpoint& found) {
      return found.problem && found.problem->code() == ErrorCode::kUnsupported;
    });
    throw Error(newer ? ErrorCode::kUnsupported : ErrorCode::kCorrupt,
                formatted("no checkpoint in {} can be used: {}", folder, join(reasons, "; ")),
                newer ? all.front().problem->next_step() : "restore one from a copy; `gannet checkpoint verify` tells more");
  }
  for (std::string& reason : reasons) reason += formatted("; used {}", chosen->tag);
  return opened(chosen->path, chosen->tag, std::move(reasons));
}

bool holds_checkpoints(const std::string& folder) { return files::kind_of(folder).is_folder && !scan(folder).empty(); }

std::vector<ListedCheckpoint> list(const std::string& folder) {
  const std::vector<FoundCheckpoint> all = scan(folder);
  const std::string latest = all.empty() ? "" : read_latest(folder).tag;
  std::vector<ListedCheckpoint> listed;
  for (const FoundCheckpoint& found : all)
    listed.push_back(
        {found.tag, found.problem ? found.problem->message() : "", found.bytes, found.step, found.saved_at, found.tag == latest});
  return listed;
}

}  // namespace gannet::checkpoint
