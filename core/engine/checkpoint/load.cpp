// load_checkpoint: the ranks choose a checkpoint together, each loads its part (loading.h), and
// either all ranks accept it or none does.
#include <ATen/core/grad_mode.h>
#include <gannet/log.h>

#include <functional>
#include <optional>
#include <set>

#include "base/format.h"
#include "base/outcome.h"
#include "base/text.h"
#include "checkpoint/lock.h"
#include "config/parse.h"
#include "control/world.h"
#include "engine/checkpoint/loading.h"
#include "engine/earlier_pass.h"
#include "engine/gate.h"
#include "files/io.h"
#include "tensor/torch_errors.h"

namespace gannet {
namespace {

using checkpoint::Opened;

std::string newest_in(const std::string& folder) {
  try {
    return checkpoint::open(folder, {}).tag();
  } catch (const Error&) {
    return "";
  }
}

// Throws if rank 0's machine has no checkpoint but another machine has one: the run must not start
// over in that case.
void refuse_if_others_have_one(const std::string& folder, const std::vector<std::string>& newest) {
  for (size_t rank = 0; rank < newest.size(); ++rank)
    if (!newest[rank].empty())
      throw Error(
          ErrorCode::kNotFound,
          formatted("rank 0's machine has no checkpoint in {}, rank {}'s has '{}'", folder, rank, newest[rank]),
          formatted("start with the ranks on the machines that they were on; to start over, remove {} on all of them", folder));
}

// Returns whether to lock the folder. A run that resumes from a folder saves into it, perhaps hours
// later, so another job that uses it must be detected now. Weights that are only read need no lock.
// `found`: rank 0's choice; null if there is none yet.
bool should_lock(const std::string& folder, const LoadOptions& options, const Opened* found) {
  if (!options.lock_folder || options.load_module_only || checkpoint::is_locked_here(folder)) return false;
  return found ? !holds_weights_alone(*found) : options.if_present;
}

// Returns the names of all ranks' entries in the checkpoint. Ranks along the data axis have the
// same entries; along other axes, the names are gathered. nullopt: a rank could not compare its own
// entries.
std::optional<std::set<std::string>> expected_by_all(
    const checkpoint::Ranks& ranks, const RankLoad* loading,
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

// Locks the folder; all ranks call it. A folder that cannot be written is still read: returns a
// note that it was not locked.
std::string lock(EngineBase::Impl& impl, const std::string& folder) try {
  impl.writer().saver(folder);
  return "";
} catch (const Error& error) {
  if (error.code() != ErrorCode::kIo) throw;
  return formatted("the folder was not locked, and saving into it will fail: {}", error.message());
}

// Rank 0's choice for all ranks.
struct CheckpointChoice {
  enum class Kind : char {
    kCheckpoint = 't',  // `text` is its tag
    kLock = 'l',        // the folder must be locked first, and then checked again
    kNone = 'n',        // there is no checkpoint, and none is required; `text` explains it
  };
  Kind kind;
  std::string text;
};

// The rounds of a load. All ranks take part in each of them: rank 0 chooses a checkpoint, all ranks
// compare and load it, and all accept it or pass it over for an older one.
class LoadRounds {
 public:
  LoadRounds(EngineBase::Impl& impl, const std::string& folder, const LoadOptions& options)
      : impl_(impl), folder_(folder), options_(options), ranks_(impl.checkpoint_ranks()) {}

  LoadReceipt run() {
    for (;;) {
      found_.reset();
      const CheckpointChoice choice = agreed_choice();
      switch (choice.kind) {
        case CheckpointChoice::Kind::kLock:  // another job may have saved in the meantime
          if (std::string problem = lock(impl_, folder_); !problem.empty()) passed_over_.push_back(std::move(problem));
          lock_is_settled_ = true;
          break;
        case CheckpointChoice::Kind::kNone:
          return none(choice.text);
        case CheckpointChoice::Kind::kCheckpoint:
          if (const std::string why = load(choice.text); !why.empty()) {
            passed_over_.push_back(formatted("passed over {}: {}", choice.text, why));
            avoid_.push_back(choice.text);
            break;
          }
          return loaded();
      }
    }
  }

 private:
  std::vector<std::string> everyone(const std::string& round, const std::string& text) const {
    return ranks_.gather ? ranks_.gather(formatted("load_checkpoint: {}", round), text) : std::vector<std::string>{text};
  }

  CheckpointChoice agreed_choice() {
    std::string mine;
    const std::string failure = outcome_of_errors([&] {
      if (ranks_.rank != 0) return;
      const CheckpointChoice choice = chosen();
      mine = static_cast<char>(choice.kind) + choice.text;
    });
    const std::string text = everyone("the checkpoint", error_in(failure) ? failure : mine)[0];
    if (text.starts_with('-')) throw *error_in(text);
    return {static_cast<CheckpointChoice::Kind>(text.at(0)), text.substr(1)};
  }

  // Makes rank 0's choice. Called on rank 0 only.
  CheckpointChoice chosen() {
    std::string none;
    try {
      found_ = checkpoint::open(folder_, {options_.tag, avoid_});
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kNotFound || !options_.if_present || !options_.tag.empty() || !avoid_.empty())
        throw passed_over_.empty()
            ? error
            : Error(error.code(), formatted("{}; {}", error.message(), join(passed_over_, "; ")), error.next_step());
      none = error.message();
    }
    if (!lock_is_settled_ && should_lock(folder_, options_, found_ ? &*found_ : nullptr))
      return {CheckpointChoice::Kind::kLock, ""};
    if (!found_) return {CheckpointChoice::Kind::kNone, none};
    return {CheckpointChoice::Kind::kCheckpoint, found_->tag()};
  }

  // Loads this rank's part of a checkpoint, as all ranks do. Returns why all ranks pass it over; ""
  // if they accept it.
  std::string load(const std::string& tag) {
    std::optional<RankLoad> loading;
    std::string mine = outcome_of_errors([&] {
      if (!found_) found_ = checkpoint::open(folder_, {tag, {}});
      loading.emplace(impl_, options_, *found_, ranks_);
    });
    const auto expected =
        expected_by_all(ranks_, loading ? &*loading : nullptr,
                        [&](const std::string& round, const std::string& text) { return everyone(round, text); });
    if (expected) mine = outcome_of_errors([&] { receipt_ = loading->run(*expected); });
    const std::vector<std::string> outcomes = everyone("loading", mine);
    std::string why;
    for (uint32_t rank = 0; rank < outcomes.size(); ++rank) {
      const auto error = error_in(outcomes[rank]);
      if (!error) continue;
      const Error named = of_rank(rank, outcomes.size(), *error);
      // If each machine has its own folder, a save that was cut short may be on only some of them.
      const bool is_missing_there = named.code() == ErrorCode::kNotFound && impl_.settings().checkpoint_on_each_machine;
      if ((named.code() != ErrorCode::kCorrupt && !is_missing_there) || !options_.tag.empty()) throw named;
      if (why.empty()) why = named.message();
    }
    return why;
  }

  // Publishes the parameters only now, so that no rank waits for a shard that another rank failed
  // to load.
  LoadReceipt loaded() {
    const at::NoGradGuard no_grad;
    impl_.store.publish_all();
    impl_.progress.mend();
    impl_.driven.failed_step = 0;
    if (impl_.reducer) impl_.module_audit->record();
    if (!receipt_.module_only) impl_.saving.loaded_folders.insert(real_path(folder_));
    receipt_.notes.insert(receipt_.notes.begin(), passed_over_.begin(), passed_over_.end());
    if (ranks_.rank == 0) log_info(receipt_.to_string());
    if (impl_.reporter) impl_.reporter->event("resume", impl_.progress.global_steps, receipt_.to_string());
    return std::move(receipt_);
  }

  LoadReceipt none(const std::string& why) {
    if (impl_.settings().checkpoint_on_each_machine)
      refuse_if_others_have_one(folder_, everyone("who has one", newest_in(folder_)));
    LoadReceipt receipt;
    receipt.notes.push_back(why);
    receipt.notes.insert(receipt.notes.end(), passed_over_.begin(), passed_over_.end());
    if (ranks_.rank == 0) log_info(receipt.to_string());
    return receipt;
  }

  EngineBase::Impl& impl_;
  const std::string& folder_;
  const LoadOptions& options_;
  const checkpoint::Ranks ranks_;
  std::optional<Opened> found_;  // the checkpoint of this round; on ranks other than 0, set once it has been chosen
  std::vector<std::string> avoid_, passed_over_;
  bool lock_is_settled_ = false;
  LoadReceipt receipt_;
};

}  // namespace

LoadReceipt EngineBase::load_checkpoint(const std::string& folder, const LoadOptions& options) try {
  Impl& impl = *impl_;
  const Entered entered(impl, Call::kLoadCheckpoint);
  forget_earlier_passes(impl);  // a step that failed partway may have had some
  wait_for_checkpoint();
  if (impl.reducer && impl.progress.is_whole()) impl.audit();  // unfrozen parameters are part of the checkpoint
  if (impl.reducer) impl.module_audit->reclaim();
  auto call = impl.process_group->world()->enter(*impl.world_group, "load_checkpoint", impl.progress.global_steps, folder);
  Timers::Scope timed(impl.timers, TimedPhase::kCheckpoint);
  return LoadRounds(impl, folder, options).run();
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
