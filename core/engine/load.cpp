// load_checkpoint: the ranks choose a checkpoint together, each loads its part (loading.h), and all believe in it or none.
#include <ATen/core/grad_mode.h>
#include <gannet/log.h>

#include <functional>
#include <optional>
#include <set>

#include "base/format.h"
#include "base/text.h"
#include "checkpoint/lock.h"
#include "config/parse.h"
#include "control/world.h"
#include "engine/earlier_pass.h"
#include "engine/evaluation.h"
#include "engine/loading.h"
#include "files/io.h"
#include "tensor/torch_errors.h"

namespace gannet {
namespace {

using checkpoint::Opened;

// An error as a text for the other ranks; "" is none.
std::string to_text(const Error& error) {
  return Value(Dict{{"code", static_cast<int64_t>(error.code())}, {"message", error.message()}, {"next_step", error.next_step()}})
      .to_json();
}

[[noreturn]] void rethrow(const std::string& text, const std::string& prefix = "") {
  const Value error = config::parse_value(text);
  throw Error(static_cast<ErrorCode>(error.at("code").as_int()), prefix + error.at("message").as_string(),
              error.at("next_step").as_string());
}

std::string newest_in(const std::string& folder) {
  try {
    return checkpoint::open(folder, {}).tag();
  } catch (const Error&) {
    return "";
  }
}

// A new machine is no reason to start over without the others.
void refuse_if_others_have_one(const std::string& folder, const std::vector<std::string>& newest) {
  for (size_t rank = 0; rank < newest.size(); ++rank)
    if (!newest[rank].empty())
      throw Error(
          ErrorCode::kNotFound,
          formatted("rank 0's machine has no checkpoint in {}, rank {}'s has '{}'", folder, rank, newest[rank]),
          formatted("start with the ranks on the machines that they were on; to start over, remove {} on all of them", folder));
}

// A run that resumes from a folder saves into it, hours later perhaps: now is the time to find another job there. Weights that
// are only read are anybody's. `found`: what rank 0 chose, null where there is none yet.
bool should_lock(const std::string& folder, const LoadOptions& options, const Opened* found) {
  if (!options.lock_folder || options.load_module_only || checkpoint::is_locked_here(folder)) return false;
  return found ? !holds_weights_alone(*found) : options.if_present;
}

// What all ranks' entries are called in the checkpoint. Ranks along the data axis have the same; along others they are asked.
// None where a rank could not compare its own.
std::optional<std::set<std::string>> expected_by_all(
    const checkpoint::Ranks& ranks, const Loading* loading,
    const std::function<std::vector<std::string>(const std::string&, const std::string&)>& everyone) {
  if (ranks.mesh.size(kDataAxis) == ranks.mesh.world_size()) return loading ? std::optional(loading->expected()) : std::nullopt;
  std::string text;
  if (loading) {
    const std::set<std::string> own = loading->expected();
    text = Value(List(own.begin(), own.end())).to_json();
  }
  std::set<std::string> all;
  for (const std::string& names : everyone("the tensors", text)) {
    if (names.empty()) return std::nullopt;
    const Value list = config::parse_value(names);
    for (const Value& name : list.as_list()) all.insert(name.as_string());
  }
  return all;
}

// On all ranks. A folder that cannot be written is read all the same.
std::string lock(EngineBase::Impl& impl, const std::string& folder) try {
  impl.writer().saver(folder);
  return "";
} catch (const Error& error) {
  if (error.code() != ErrorCode::kIo) throw;
  return formatted("the folder was not locked, and saving into it will fail: {}", error.message());
}

}  // namespace

LoadReceipt EngineBase::load_checkpoint(const std::string& folder, const LoadOptions& options) try {
  Impl& impl = *impl_;
  const Calls::Entered entered(impl.calls, "load_checkpoint");
  impl.refuse_within_backward("load_checkpoint");
  require_training_weights(impl, "load_checkpoint");
  refuse_between_passes(impl, "load_checkpoint");
  refuse_while_gathered(impl, "load_checkpoint");
  forget_earlier_passes(impl);  // of a step that left parameters undefined
  wait_for_checkpoint();
  if (impl.reducer && impl.progress.is_whole()) impl.audit();  // parameters that were thawed are part of the checkpoint
  if (impl.reducer) impl.module_audit->reclaim();
  auto call = impl.process_group->world()->enter(*impl.world_group, "load_checkpoint", impl.progress.global_steps, folder);
  Timers::Scope timed(impl.timers, Timed::kCheckpoint);
  const checkpoint::Ranks ranks = impl.checkpoint_ranks();
  auto everyone = [&](const std::string& what, const std::string& text) {
    return ranks.gather ? ranks.gather(formatted("load_checkpoint: {}", what), text) : std::vector<std::string>{text};
  };
  std::vector<std::string> avoid, passed_over;
  bool lock_is_settled = false;
  for (;;) {
    // Rank 0 chooses; the others open the same, and all try before anyone believes in it.
    std::optional<Opened> found;
    std::string choice, problem;
    if (ranks.rank == 0) {
      try {
        found = checkpoint::open(folder, {options.tag, avoid});
        choice = formatted("tag {}", found->tag());
      } catch (const Error& error) {
        choice = to_text(passed_over.empty() ? error
                                             : Error(error.code(), formatted("{}; {}", error.message(), join(passed_over, "; ")),
                                                     error.next_step()));
        if (error.code() == ErrorCode::kNotFound && options.if_present && options.tag.empty() && avoid.empty())
          choice = formatted("none {}", error.message());
      }
      const bool is_choice = found || choice.starts_with("none ");
      if (is_choice && !lock_is_settled && should_lock(folder, options, found ? &*found : nullptr)) choice = "lock";
    }
    choice = everyone("the checkpoint", choice)[0];
    if (choice == "lock") {
      if (std::string problem = lock(impl, folder); !problem.empty()) passed_over.push_back(std::move(problem));
      lock_is_settled = true;
      continue;  // another job may have saved until now
    }
    if (choice.starts_with("none ")) {
      if (impl.settings().checkpoint_on_each_machine)
        refuse_if_others_have_one(folder, everyone("who has one", newest_in(folder)));
      LoadReceipt receipt;
      receipt.notes.push_back(choice.substr(5));
      receipt.notes.insert(receipt.notes.end(), passed_over.begin(), passed_over.end());
      if (ranks.rank == 0) log_info(receipt.to_string());
      return receipt;
    }
    if (!choice.starts_with("tag ")) rethrow(choice);
    const std::string tag = choice.substr(4);
    LoadReceipt receipt;
    std::optional<Loading> loading;
    try {
      if (!found) found = checkpoint::open(folder, {tag, {}});
      loading.emplace(impl, options, *found, ranks);
    } catch (const Error& error) {
      problem = to_text(error);
    }
    const auto expected = expected_by_all(ranks, loading ? &*loading : nullptr, everyone);
    try {
      if (expected) receipt = loading->run(*expected);
    } catch (const Error& error) {
      problem = to_text(error);
    }
    const auto problems = everyone("loading", problem);
    std::optional<std::string> first;
    for (uint32_t rank = 0; rank < problems.size(); ++rank) {
      if (problems[rank].empty()) continue;
      try {
        rethrow(problems[rank], problems.size() > 1 ? formatted("rank {}: ", rank) : "");
      } catch (const Error& error) {
        // Where each machine has a folder of its own, a save that was cut short may be on some of them only.
        const bool is_missing_there = error.code() == ErrorCode::kNotFound && impl.settings().checkpoint_on_each_machine;
        if ((error.code() != ErrorCode::kCorrupt && !is_missing_there) || !options.tag.empty()) throw;
        if (!first) first = error.message();
      }
    }
    if (!first) {
      // Only now: no rank waits for the others' parts while one of them has none to give.
      at::NoGradGuard no_grad;
      impl.store.publish_all();
      impl.progress.mend();
      if (impl.reducer) impl.module_audit->record();
      if (!receipt.module_only) impl.saving.loaded_folders.insert(real_path(folder));
      receipt.notes.insert(receipt.notes.begin(), passed_over.begin(), passed_over.end());
      if (ranks.rank == 0) log_info(receipt.to_string());
      if (impl.reporter) impl.reporter->event("resume", impl.progress.global_steps, receipt.to_string());
      return receipt;
    }
    passed_over.push_back(formatted("passed over {}: {}", tag, *first));
    avoid.push_back(tag);
  }
} catch (...) {
  rethrow_as_ours("load_checkpoint");
}

std::string LoadReceipt::to_string() const {
  std::string text;
  if (loaded) {
    text = formatted("loaded {} (saved by {}{}): {} parameters, {} buffers, {} optimizer states; step {}", path, saved_by_ranks,
                     saved_by_ranks == 1 ? " rank" : " ranks", parameters, buffers, states, global_steps);
    for (size_t g = 0; g < lr.size(); ++g) text += (g ? ", " : ", lr ") + Value(lr[g]).to_json();
    text += formatted(", {} samples seen", global_samples);
  } else {
    text = "no checkpoint was loaded, the run starts from the beginning";
  }
  for (const auto& line : notes) text += formatted("\n  {}", line);
  return text;
}

}  // namespace gannet
