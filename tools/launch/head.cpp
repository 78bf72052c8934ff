#include "launch/head.h"

#include <gannet/error.h>
#include <gannet/stop.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <map>
#include <optional>

#include "base/format.h"
#include "base/text.h"
#include "launch/cause.h"
#include "launch/guard.h"
#include "launch/head_link.h"
#include "launch/marked.h"
#include "launch/node_plan.h"

namespace gannet::launch {
namespace {

using std::chrono::milliseconds;

// ssh gives up after 8 s where nothing answers; this is for a host that answers and then does not go on.
constexpr std::chrono::seconds kMostForAnAgent{30};

constexpr std::chrono::seconds kForTheCause{2};
constexpr std::chrono::seconds kForARestart{300};  // of a machine

std::string this_folder() {
  std::array<char, PATH_MAX> folder{};
  if (!getcwd(folder.data(), folder.size()))
    throw Error(ErrorCode::kNotFound, "the current folder has been removed", "change to one that every host has");
  return folder.data();
}

}  // namespace

struct Head::Node {
  Host host;
  bool is_here = false;
  std::unique_ptr<Connection> connection;  // null: not there, or not any more
  uint32_t first_rank = 0;
  std::string refusal;  // why it cannot take part
  int refusal_code = 3;
  bool has_agent = false;  // the refusal is that of an agent
  std::optional<Readiness> readiness;
  std::optional<AttemptOutcome> outcome;  // of this attempt
  bool is_silent = false;
  Clock::time_point started, heard;
};

Head::Head(const HeadOptions& options, milliseconds failure_grace, Session& session)
    : options_(options),
      failure_grace_(failure_grace),
      session_(session),
      build_(build_id()),
      folder_(this_folder()),
      environment_(with_exports(environment_to_send(inherited_environment(options.options)), options.exports)) {
  uint32_t first = 0;
  for (const Host& host : options.hosts) {
    nodes_.push_back(std::make_unique<Node>());
    nodes_.back()->host = host;
    nodes_.back()->is_here = is_this_machine(host.name);
    nodes_.back()->first_rank = first;
    first += static_cast<uint32_t>(host.slots.size());
  }
}

// All agents learn of the end before the first one is waited for.
Head::~Head() {
  for (auto& node : nodes_)
    if (node->connection) node->connection->close_input();
}

std::string Head::plan_for(size_t index) const {
  NodePlan plan;
  plan.build = build_;
  plan.folder = folder_;
  plan.options = options_.options;
  plan.options.procs = static_cast<uint32_t>(options_.hosts[index].slots.size());
  plan.options.slots = options_.hosts[index].slots;
  plan.options.node.index = static_cast<uint32_t>(index);
  plan.options.node.count = static_cast<uint32_t>(options_.hosts.size());
  for (const Host& host : options_.hosts) plan.options.node.procs_of_nodes.push_back(static_cast<uint32_t>(host.slots.size()));
  plan.options.environment = environment_;
  plan.failure_grace_ms = failure_grace_.count();
  plan.file_mask = umask(0);
  umask(plan.file_mask);
  return packed(plan);
}

bool Head::is_running(const Node& node) const { return node.connection && !node.outcome; }

bool Head::all_over() const {
  return std::all_of(nodes_.begin(), nodes_.end(), [](const auto& node) { return node->outcome.has_value(); });
}

// Starts the agents that are missing, and waits until all are ready or refused. False if a stop came.
bool Head::start_agents() {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = *nodes_[i];
    node.outcome.reset();
    if (node.connection && node.connection->has_ended()) node.connection.reset();
    if (node.connection) continue;
    node.readiness.reset();
    node.refusal.clear();
    node.refusal_code = 3;
    node.has_agent = false;
    node.connection = std::make_unique<Connection>(agent_command(node.host.name, node.is_here, options_.ssh));
    node.connection->send(FrameKind::kPlan, plan_for(i));
    node.started = node.heard = Clock::now();
    beat();  // many hosts take their time
  }
  const auto waits = [&](const auto& node) { return node->connection && !node->readiness && node->refusal.empty(); };
  while (std::any_of(nodes_.begin(), nodes_.end(), waits)) {
    exchange();
    for (auto& node : nodes_) {
      if (!waits(node)) continue;
      Connection& connection = *node->connection;
      const bool has_ended = connection.has_ended();
      if (!connection.foreign().empty() || has_ended)
        node->refusal =
            why_no_agent(node->host.name, options_.ssh, connection.exit_code(), connection.errors(), connection.foreign());
      else if (Clock::now() - node->started > kMostForAnAgent)
        node->refusal = formatted("{}: no agent has answered in {}. Next: try ssh {}", node->host.name,
                                  in_seconds(kMostForAnAgent), node->host.name);
    }
    for (Signal signal; session_.next(signal);)
      if (Signals::is_stop(signal.number)) {
        stopped_by_ = signal.number;
        return false;
      }
  }
  check_machines();
  return true;
}

// A host that has gone down comes back after some minutes. False if a stop came.
bool Head::start_agents_patiently() {
  const auto end = Clock::now() + kForARestart;
  for (bool is_told = false;;) {
    if (!start_agents()) return false;
    const auto is_away = [](const auto& node) { return !node->refusal.empty() && !node->has_agent; };
    if (std::none_of(nodes_.begin(), nodes_.end(), is_away) || Clock::now() > end) return true;
    for (auto& node : nodes_) {
      if (!is_away(node)) continue;
      if (!is_told) session_.output.say(formatted("{}. It is tried again for {}", node->refusal, in_seconds(kForARestart)));
      node->connection.reset();
    }
    is_told = true;
    for (const auto next = Clock::now() + std::chrono::seconds(5); Clock::now() < next;) {
      exchange();
      for (Signal signal; session_.next(signal);)
        if (Signals::is_stop(signal.number)) {
          stopped_by_ = signal.number;
          return false;
        }
    }
  }
}

// A host that is listed by two names would have each of its devices twice.
void Head::check_machines() {
  if (!options_.ssh.command.empty()) return;  // containers of one machine may share its network
  std::map<std::string, const Node*> seen;
  for (auto& node : nodes_) {
    if (!node->readiness) continue;
    const auto [other, is_new] = seen.emplace(node->readiness->machine, node.get());
    if (!is_new)
      node->refusal =
          formatted("{}: is the same machine as {}. Next: give each machine one line of the hostfile, with all of its slots",
                    node->host.name, other->second->host.name);
  }
}

AttemptOutcome Head::refused() const {
  std::vector<std::string> sentences;
  for (const auto& node : nodes_)
    if (!node->refusal.empty()) sentences.push_back(node->refusal);
  AttemptOutcome outcome{.code = 3, .failed = true};
  const int code = nodes_[0]->refusal_code;
  if (std::all_of(nodes_.begin(), nodes_.end(), [&](const auto& node) { return node->refusal_code == code; }))
    outcome.code = code;
  outcome.why = formatted("{} of {} hosts cannot take part", sentences.size(), nodes_.size());
  outcome.report = formatted("{}, and no rank was started:\n    {}", outcome.why, join(sentences, "\n    "));
  outcome.no_restart = "no rank was started";
  return outcome;
}

void Head::go(uint32_t restart) {
  Go go;
  go.restart = restart;
  go.place = nodes_[0]->readiness->place;
  go.address = nodes_.size() == 1 ? "127.0.0.1" : options_.master_addr;
  go.port = options_.options.node.master_port ? options_.options.node.master_port
                                              : static_cast<uint32_t>(std::stoul(go.place.substr(go.place.rfind(':') + 1)));
  for (auto& node : nodes_) {
    node->connection->send(FrameKind::kGo, packed(go));
    node->readiness.reset();
  }
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
        if (is_running(*node)) node->connection->send(FrameKind::kSignal, std::to_string(SIGTERM));
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

// One turn: waits for something to happen, writes, reads, and takes what has come.
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
    node->connection->exchange(may_read);
    if (!may_read) node->heard = Clock::now();  // it may have written long ago
    while (auto frame = node->connection->next()) take(*node, *frame);
  }
  session_.output.flush();
}

void Head::take(Node& node, const Frame& frame) {
  node.heard = Clock::now();
  if (node.is_silent) {
    node.is_silent = false;
    session_.output.say(formatted("{}: is there again", node.host.name));
  }
  switch (frame.kind) {
    case FrameKind::kReady:
      node.readiness = readiness_in(frame.body);
      break;
    case FrameKind::kRefused:
      node.refusal_code = refusal_in(frame.body).code;
      node.refusal = formatted("{}: {}", node.host.name, refusal_in(frame.body).why);
      node.has_agent = true;
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

void Head::take_outcome(Node& node, AttemptOutcome outcome) {
  if (node.outcome) return;
  node.outcome = std::move(outcome);
  ended_.push_back(&node);
  if (!node.outcome->failed || has_failed_) return;
  has_failed_ = true;
  // A rank that has lost another one may have ended before it: the cause is given the time to end by itself.
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

std::string Head::ranks_text(const Node& node) {
  const auto count = static_cast<uint32_t>(node.host.slots.size());
  return count == 1 ? formatted("rank {}", node.first_rank)
                    : formatted("ranks {} to {}", node.first_rank, node.first_rank + count - 1);
}

void Head::lose(Node& node, const std::string& how) {
  AttemptOutcome outcome{.code = 3, .failed = true};
  outcome.weight = AttemptOutcome::kHostLost;
  outcome.why = how;
  outcome.report = how;
  node.connection.reset();
  node.readiness.reset();
  take_outcome(node, outcome);
}

void Head::notice_lost(Node& node) {
  if (!node.connection || !node.connection->has_ended()) return;
  if (!is_running(node)) {
    node.connection.reset();
    return;
  }
  const std::string words = node.connection->errors().empty() ? "" : formatted(" ({})", last_line(node.connection->errors()));
  lose(node, formatted("the connection to {} ({}) was lost{}", node.host.name, ranks_text(node), words));
}

// A host is given up only once the others' ranks are over: until then they train, and judge by themselves.
void Head::notice_silence(Node& node) {
  if (!is_running(node) || Clock::now() - node.heard < std::chrono::seconds(10)) return;
  if (!node.is_silent) session_.output.say(formatted("{}: not reachable since 10 s", node.host.name));
  node.is_silent = true;
  const bool others_are_over = std::all_of(nodes_.begin(), nodes_.end(), [&](const auto& other) {
    return other.get() == &node || other->outcome || other->is_silent;
  });
  const bool any_is_over = nodes_.size() > 1 && std::any_of(nodes_.begin(), nodes_.end(),
                                                            [](const auto& other) { return other->outcome.has_value(); });
  if (others_are_over && (any_is_over || stopped_by_))
    lose(node,
         formatted("{} has not answered for 10 s, and is given up: {} may still run there", node.host.name, ranks_text(node)));
}

AttemptOutcome Head::judge() const {
  const auto failed = [](const Node* node) { return node->outcome->failed; };
  const auto less = [&](const Node* a, const Node* b) {
    return failed(a) != failed(b) ? failed(a) : a->outcome->weight < b->outcome->weight;
  };
  const Node* const cause = *std::min_element(ended_.begin(), ended_.end(), less);  // the first one of the smallest
  if (failed(cause)) {
    AttemptOutcome outcome = *cause->outcome;
    std::vector<std::string> others;
    for (const Node* node : ended_)
      if (node != cause && !node->outcome->why.empty())
        others.push_back(formatted("{}: {}", node->host.name, node->outcome->why));
    if (nodes_.size() > 1 && !others.empty()) outcome.report += formatted("\n  On the other hosts: {}", join(others, "; "));
    outcome.why = formatted("{} ({})", outcome.why, cause->host.name);
    for (const Node* node : ended_) outcome.was_stopped |= node->outcome->was_stopped;
    if (stopped_by_ && outcome.no_restart.empty()) outcome.no_restart = formatted("{} came", signal_name(stopped_by_));
    return outcome;
  }
  // Asked to stop, or at their end: the first code that is neither 0 nor 85, else 85 if any is.
  AttemptOutcome outcome;
  for (const Node* node : ended_) {
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
    return supervise(options.options, session, [&](uint32_t restart) { return head.run(restart); });
  });
}

}  // namespace gannet::launch
