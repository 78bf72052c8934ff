#include "launch/head.h"

#include <gannet/error.h>
#include <gannet/stop.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <optional>

#include "base/format.h"
#include "base/text.h"
#include "launch/cause.h"
#include "launch/guard.h"
#include "launch/head_link.h"
#include "launch/head_node.h"
#include "launch/marked.h"

namespace gannet::launch {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kForTheCause{2};

std::string this_folder() {
  std::array<char, PATH_MAX> folder{};
  if (!getcwd(folder.data(), folder.size()))
    throw Error(ErrorCode::kNotFound, "the current folder has been removed", "change to one that every host has");
  return folder.data();
}

}  // namespace

Head::Head(const HeadOptions& options, milliseconds failure_grace, Session& session)
    : options_(options),
      failure_grace_(failure_grace),
      session_(session),
      build_(build_id()),
      folder_(this_folder()),
      environment_(with_exports(environment_to_send(inherited_environment(options.options)), options.exports)) {
  uint32_t first = 0;
  for (const Host& host : options.hosts) {
    nodes_.push_back(std::make_unique<HeadNode>());
    nodes_.back()->host = host;
    nodes_.back()->is_here = is_this_machine(host.name);
    nodes_.back()->first_rank = first;
    first += static_cast<uint32_t>(host.slots.size());
  }
}

// Closes all connections before waiting for any agent to end.
Head::~Head() {
  for (auto& node : nodes_)
    if (node->connection) node->connection->close_input();
}

bool Head::is_running(const HeadNode& node) const { return node.connection && !node.outcome; }

bool Head::all_over() const {
  return std::all_of(nodes_.begin(), nodes_.end(), [](const auto& node) { return node->outcome.has_value(); });
}

AttemptOutcome Head::run(uint32_t restart) {
  has_failed_ = false;
  fail_at_.reset();
  ended_.clear();
  session_.output.drop_when_full(false);
  if (!(restart > 0 ? start_agents_patiently() : start_agents())) {
    AttemptOutcome outcome{.code = 128 + stopped_by_};
    outcome.was_stopped = true;
    outcome.report = formatted("{} came before any rank was started", signal_name(stopped_by_));
    return outcome;
  }
  if (std::any_of(nodes_.begin(), nodes_.end(), [](const auto& node) { return !node->refusal.empty(); })) return refused();
  go(restart);
  while (!all_over()) {
    exchange();
    take_signals();
    for (auto& node : nodes_) {
      notice_lost(*node);
      notice_silence(*node);
    }
    end_the_others();
    if (session_.output.lost_its_reader() && !stopped_by_) {
      stopped_by_ = SIGTERM;
      session_.output.say("the end of its output's reader: SIGTERM is forwarded to all hosts");
      for (auto& node : nodes_)
        if (is_running(*node)) node->connection->send(FrameKind::kReaderEnded, "");
    }
  }
  return judge();
}

void Head::beat() {
  if (Clock::now() - beaten_ < HeadLink::kBeat) return;
  beaten_ = Clock::now();
  for (auto& node : nodes_)
    if (node->connection) node->connection->send(FrameKind::kBeat, "");
}

void Head::exchange() {
  beat();
  session_.output.drop_when_full(stopped_by_ != 0 || has_failed_);
  const bool may_read = stopped_by_ || has_failed_ || (session_.output.has_room(1) && session_.output.has_room(2));
  std::vector<pollfd> waiting;
  for (auto& node : nodes_)
    if (node->connection) node->connection->add_to(waiting, may_read);
  session_.wait(std::move(waiting), milliseconds(500));
  for (auto& node : nodes_) {
    if (!node->connection) continue;
    if (!may_read) node->heard = Clock::now();  // its frames may be waiting to be read
    take_all(*node, may_read);
  }
  session_.output.flush();
}

void Head::take_all(HeadNode& node, bool may_read) {
  node.connection->exchange(may_read);
  while (auto frame = node.connection->next()) take(node, *frame);
}

void Head::take(HeadNode& node, const Frame& frame) {
  node.heard = Clock::now();
  if (node.is_silent) {
    node.is_silent = false;
    session_.output.say(formatted("{}: answers again", node.host.name));
  }
  switch (frame.kind) {
    case FrameKind::kReady:
      node.readiness = readiness_in(frame.body);
      break;
    case FrameKind::kRefused:
      node.refusal_code = refusal_in(frame.body).code;
      node.refusal = formatted("{}: {}", node.host.name, refusal_in(frame.body).why);
      break;
    case FrameKind::kOut:
      session_.output.write(1, frame.body);
      break;
    case FrameKind::kError:
      session_.output.write(2, frame.body);
      break;
    case FrameKind::kSay:
      session_.output.say(formatted("{}: {}", node.host.name, frame.body));
      break;
    case FrameKind::kOutcome:
      take_outcome(node, outcome_in(frame.body));
      break;
    default:
      break;
  }
}

void Head::take_outcome(HeadNode& node, AttemptOutcome outcome) {
  if (node.outcome) return;
  node.outcome = std::move(outcome);
  ended_.push_back(&node);
  if (!node.outcome->failed || has_failed_) return;
  has_failed_ = true;
  // A rank that lost a peer may end before that peer does: give the cause time to be reported.
  fail_at_ = Clock::now() + (node.outcome->weight == AttemptOutcome::kPeerLost ? kForTheCause : std::chrono::seconds(0));
  if (std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& other) { return is_running(*other); }))
    session_.output.say(formatted("{}: {}; stopping the ranks of the other hosts", node.host.name, node.outcome->why));
}

void Head::end_the_others() {
  if (!fail_at_ || Clock::now() < *fail_at_) return;
  fail_at_.reset();
  for (auto& node : nodes_)
    if (is_running(*node)) node->connection->send(FrameKind::kFail, "");
}

void Head::take_signals() {
  for (Signal signal; session_.next(signal);) {
    if (Signals::is_stop(signal.number)) {
      ++stops_;
      stopped_by_ = stopped_by_ ? stopped_by_ : signal.number;
      session_.output.say(
          stops_ > 1 ? formatted("{} again: killing the ranks", signal_name(signal.number))
                     : formatted("{} is forwarded to the ranks of {} host{}, which have {} to end; send it again to kill them",
                                 signal_name(signal.number), nodes_.size(), nodes_.size() == 1 ? "" : "s",
                                 in_seconds(milliseconds(static_cast<int64_t>(options_.options.grace_seconds * 1000)))));
    }
    for (auto& node : nodes_)
      if (is_running(*node)) node->connection->send(FrameKind::kSignal, std::to_string(signal.number));
  }
}

std::string Head::ranks_text(const HeadNode& node) {
  const auto count = static_cast<uint32_t>(node.host.slots.size());
  return count == 1 ? formatted("rank {}", node.first_rank)
                    : formatted("ranks {} to {}", node.first_rank, node.first_rank + count - 1);
}

void Head::lose(HeadNode& node, const std::string& how) {
  AttemptOutcome outcome{.code = 3, .failed = true};
  outcome.weight = AttemptOutcome::kHostLost;
  outcome.why = how;
  outcome.report = how;
  node.connection->kill();
  node.connection.reset();
  node.readiness.reset();
  take_outcome(node, outcome);
}

void Head::notice_lost(HeadNode& node) {
  if (!node.connection || !node.connection->has_ended()) return;
  if (!is_running(node)) {
    node.connection.reset();
    return;
  }
  const std::string words = node.connection->errors().empty() ? "" : formatted(" ({})", last_line(node.connection->errors()));
  lose(node, formatted("the connection to {} ({}) was lost{}", node.host.name, ranks_text(node), words));
}

// Drops a silent host only after the others have ended: they may still train, or notice the loss.
void Head::notice_silence(HeadNode& node) {
  if (!is_running(node) || Clock::now() - node.heard < std::chrono::seconds(10)) return;
  if (!node.is_silent) session_.output.say(formatted("{}: no answer for 10 s", node.host.name));
  node.is_silent = true;
  const bool others_are_over = std::all_of(nodes_.begin(), nodes_.end(), [&](const auto& other) {
    return other.get() == &node || other->outcome || other->is_silent;
  });
  const bool any_is_over = nodes_.size() > 1 && std::any_of(nodes_.begin(), nodes_.end(),
                                                            [](const auto& other) { return other->outcome.has_value(); });
  if (others_are_over && (any_is_over || stopped_by_))
    lose(node, formatted("{} has not answered for 10 s and is no longer waited for: {} may still run there", node.host.name,
                         ranks_text(node)));
}

AttemptOutcome Head::judge() const {
  const auto failed = [](const HeadNode* node) { return node->outcome->failed; };
  const auto less = [&](const HeadNode* a, const HeadNode* b) {
    return failed(a) != failed(b) ? failed(a) : a->outcome->weight < b->outcome->weight;
  };
  const HeadNode* const cause = *std::min_element(ended_.begin(), ended_.end(), less);  // on a tie, the first to end
  if (failed(cause)) {
    AttemptOutcome outcome = *cause->outcome;
    std::vector<std::string> others;
    for (const HeadNode* node : ended_)
      if (node != cause && !node->outcome->why.empty())
        others.push_back(formatted("{}: {}", node->host.name, node->outcome->why));
    if (nodes_.size() > 1 && !others.empty()) outcome.report += formatted("\n  On the other hosts: {}", join(others, "; "));
    outcome.why = formatted("{} ({})", outcome.why, cause->host.name);
    for (const HeadNode* node : ended_) outcome.was_stopped |= node->outcome->was_stopped;
    if (stopped_by_ && outcome.no_restart.empty()) outcome.no_restart = formatted("{} came", signal_name(stopped_by_));
    return outcome;
  }
  // Stopped or finished: the first code other than 0 and 85, else 85 if any host has it.
  AttemptOutcome outcome;
  for (const HeadNode* node : ended_) {
    const int code = node->outcome->code;
    outcome.was_stopped |= node->outcome->was_stopped;
    const bool is_orderly = code == 0 || code == kStoppedExitCode;
    if (is_orderly && outcome.code == 0) outcome = *node->outcome;
    if (is_orderly) continue;
    if (outcome.code == 0 || outcome.code == kStoppedExitCode) outcome = {.code = code, .was_stopped = outcome.was_stopped};
    outcome.report += formatted("{}{}: {}", outcome.report.empty() ? "" : "\n  ", node->host.name, node->outcome->report);
  }
  return outcome;
}

int run_on_hosts(const HeadOptions& options, milliseconds failure_grace) {
  keep_descriptors_apart();
  const std::string mark = new_mark();
  return run_guarded(mark, [&](int channel) {
    Session session(mark, channel);
    Head head(options, failure_grace, session);
    return supervise(options.options, session, [&](uint32_t restart) { return head.run(restart); }, [&] { head.exchange(); });
  });
}

}  // namespace gannet::launch
