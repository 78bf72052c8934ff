#include "control/rendezvous.h"

#include <gannet/error.h>
#include <gannet/log.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>
#include <thread>

#include "base/format.h"
#include "base/text.h"
#include "control/network.h"
#include "control/thread_share.h"

namespace gannet::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char* kSameSize =
    "start all ranks with the same WORLD_SIZE, and gannet run with the same --num_procs and --num_nodes on every machine";

// How long rank 0 stays alive after it has failed, so that the other ranks learn the reason.
constexpr milliseconds kKnownWithin{3'000};

std::string seconds(milliseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, time.count() % 1000 == 0 || time.count() > 20'000 ? "%.0f s" : "%.1f s",
                time.count() / 1000.0);
  return text;
}

std::string place(const Environment& environment) { return formatted("{}:{}", environment.master_addr, environment.master_port); }

// Waits until the server can be reached, with reports, before c10d connects to it: c10d would wait
// silently.
void wait_for_server(const Environment& environment, const Patience& patience) {
  const std::string server = environment.agent_store ? "the agent that started the ranks" : "rank 0";
  auto next_report = steady_clock::now() + patience.report_every;
  for (;;) {
    const milliseconds attempt = std::clamp(patience.left(), milliseconds(1), milliseconds(1000));
    const std::string reason = try_to_reach(environment.master_addr, environment.master_port, static_cast<int>(attempt.count()));
    if (reason.empty()) return;
    if (patience.left().count() <= 0)
      throw Error(
          ErrorCode::kTimeout,
          formatted("rank {} of {} could not reach {} at {} within {}: {}", environment.rank, environment.world_size, server,
                    place(environment), seconds(patience.total), reason),
          "see whether rank 0 was started and still runs, and whether MASTER_ADDR and MASTER_PORT are the same on all ranks");
    if (steady_clock::now() >= next_report) {
      log_info(formatted("waiting for {} at {} ({}): {}", server, place(environment), patience.spent(), reason));
      next_report += patience.report_every;
    }
    std::this_thread::sleep_for(std::min(patience.left(), milliseconds(100)));
  }
}

struct Member {
  std::string address, machine, cores;
};

Member parse_member(const std::string& text) {
  Member member;
  std::istringstream lines(text);
  for (std::string* const part : {&member.address, &member.machine, &member.cores}) std::getline(lines, *part);
  return member;
}

// The loopback address if all ranks are on one machine, else the local address towards MASTER_ADDR.
// If the master's name resolves to its own loopback (as on Debian), the master uses its address
// towards another machine.
std::string own_address(const std::vector<Member>& members, uint32_t rank) {
  const Member& self = members[rank];
  if (std::all_of(members.begin(), members.end(), [&](const Member& other) { return other.machine == self.machine; }))
    return "127.0.0.1";
  if (!self.address.empty() && !is_loopback(self.address)) return self.address;
  for (const Member& other : members)
    if (other.machine != self.machine && !other.address.empty() && !is_loopback(other.address))
      return address_towards(other.address);
  return self.address;
}

}  // namespace

Patience::Patience(milliseconds time_out, milliseconds report)
    : total(time_out), report_every(report), start(steady_clock::now()), end(start + time_out) {}

milliseconds Patience::left() const {
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(end - steady_clock::now()));
}

std::string Patience::spent() const {
  return formatted("{} of {}", seconds(std::chrono::round<std::chrono::seconds>(steady_clock::now() - start)), seconds(total));
}

std::string name_ranks(const std::vector<uint32_t>& ranks) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    // Three or more consecutive ranks become a range.
    if (last - i >= 2) {
      parts.push_back(formatted("{}-{}", ranks[i], ranks[last]));
    } else {
      for (size_t k = i; k <= last; ++k) parts.push_back(std::to_string(ranks[k]));
    }
    i = last + 1;
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + join(parts, ", ");
}

void wait_for_ranks(Store& store, const std::string& key, uint32_t self, uint32_t world_size, const std::string& what,
                    const Patience& patience) {
  constexpr const char* kAdvice =
      "see how those processes ended or what keeps them; timeout_seconds of init_distributed or DEEPSPEED_TIMEOUT (minutes) "
      "allows more time";
  std::vector<uint32_t> missing(world_size);
  for (uint32_t rank = 0; rank < world_size; ++rank) missing[rank] = rank;
  const auto came = [&](uint32_t rank) { return store.check(formatted("{}/{}", key, rank)); };
  auto next_report = steady_clock::now() + patience.report_every;
  for (;;) {
    std::vector<std::string> keys;
    for (const uint32_t rank : missing) keys.push_back(formatted("{}/{}", key, rank));
    if (store.wait(keys, std::min({patience.report_every, patience.left(), milliseconds(1000)}))) return;
    std::erase_if(missing, came);
    if (missing.empty()) return;
    const std::string who = formatted("{} of {}", name_ranks(missing), world_size);

    // The store lives in rank 0's process. When rank 0 times out, it therefore stores the reason
    // and waits until the others have read it.
    if (patience.left().count() <= 0) {
      const std::string sentence = formatted("{} did not arrive {} within {}", who, what, seconds(patience.total));
      if (self == 0) {
        store.set(formatted("{}/given-up", key), sentence);
        const auto others = static_cast<int64_t>(world_size - missing.size()) - 1;
        for (const Patience goodbye(kKnownWithin);
             goodbye.left().count() > 0 && store.add(formatted("{}/know", key), 0) < others;)
          std::this_thread::sleep_for(milliseconds(20));
      } else {
        store.add(formatted("{}/know", key), 1);
      }
      throw Error(ErrorCode::kTimeout, sentence, kAdvice);
    }
    // A rank with a different world size stored the reason; rank 0 stays until others have read it.
    if (store.check(formatted("{}/refused", key))) {
      const std::string sentence = store.get(formatted("{}/refused", key));
      if (self == 0) std::this_thread::sleep_for(kKnownWithin / 2);
      throw Error(ErrorCode::kMismatch, sentence, kSameSize);
    }
    if (self != 0 && store.check(formatted("{}/given-up", key))) {
      const std::string sentence = store.get(formatted("{}/given-up", key));
      store.add(formatted("{}/know", key), 1);
      throw Error(ErrorCode::kTimeout, sentence, kAdvice);
    }
    if (steady_clock::now() >= next_report) {
      log_info(formatted("waiting for {} {} ({})", who, what, patience.spent()));
      next_report += patience.report_every;
    }
  }
}

namespace {

// torchrun restarts the ranks when a machine joins or leaves. The keys of earlier starts remain in its store, and the restart
// count may differ from machine to machine. So each start gets a number: rank 0 draws it, and every other rank announces itself
// under the newest one until rank 0 has found it there. By then no rank of an earlier start is alive.
int64_t number_of_start(Store& store, const Environment& environment, const Patience& patience) {
  const std::string self = formatted("{} {} {}", machine_identity(), getpid(), steady_clock::now().time_since_epoch().count());
  const auto key_of = [](int64_t start, const std::string& name) { return formatted("start/{}/{}", start, name); };
  const std::string what = formatted("at the rendezvous at {}", place(environment));
  if (environment.rank == 0) {
    const int64_t start = store.add("starts", 1);
    const std::string key = formatted("start/{}", start);
    store.set(key_of(start, "0"), self);
    wait_for_ranks(store, key, 0, environment.world_size, what, patience);
    std::vector<std::string> members;
    for (uint32_t rank = 0; rank < environment.world_size; ++rank) members.push_back(store.get(formatted("{}/{}", key, rank)));
    store.set(key_of(start, "met"), join(members, "\n"));
    return start;
  }
  auto next_report = steady_clock::now() + patience.report_every;
  for (int64_t announced = 0; patience.left().count() > 0;) {
    const int64_t start = store.add("starts", 0);
    if (start != announced) store.set(key_of(start, std::to_string(environment.rank)), self);
    announced = start;
    if (store.wait({key_of(start, "met")}, milliseconds(200))) {
      const std::vector<std::string> members = split(store.get(key_of(start, "met")), '\n');
      if (std::find(members.begin(), members.end(), self) != members.end()) return start;
      std::this_thread::sleep_for(milliseconds(50));  // "met" is that of an earlier start
    }
    if (steady_clock::now() >= next_report) {
      log_info(formatted("waiting for rank 0 of {} {} ({})", environment.world_size, what, patience.spent()));
      next_report += patience.report_every;
    }
  }
  throw Error(ErrorCode::kTimeout,
              formatted("rank 0 of {} did not arrive {} within {}", environment.world_size, what, seconds(patience.total)),
              "see how that process ended or what keeps it");
}

// Whether this process serves the store.
bool is_server(const Environment& environment) { return environment.rank == 0 && !environment.agent_store; }

std::unique_ptr<Store> open_store(const Environment& environment, uint32_t generation, const Patience& patience) {
  Store::Options options;
  options.port = environment.master_port;
  options.timeout = patience.total;
  if (is_server(environment)) {
    // The client in the server's own process uses the loopback: MASTER_ADDR may be a name that only
    // other machines can resolve.
    options.host = "127.0.0.1";
    options.listener = listen_on(environment.master_port).release();
  } else {
    options.host = environment.master_addr;
    wait_for_server(environment, patience);
  }
  // A rank of another job that connects to this port by mistake finds no keys, since it waits for
  // them under its own job's prefix.
  options.prefix = formatted("gannet/{}{}/", environment.job.empty() ? "" : formatted("{}/", environment.job), generation);
  if (environment.agent_store) {
    Store agents(options);
    options.prefix += formatted("{}/", number_of_start(agents, environment, patience));
  }
  return std::make_unique<Store>(options);
}

// Detects different world sizes immediately, before waiting for ranks that never arrive.
void check_world_size(Store& store, const Environment& environment) {
  const std::string self = std::to_string(environment.rank), size = std::to_string(environment.world_size);
  if (store.add("first", 1) == 1) store.set("world", formatted("{} {}", self, size));
  const std::vector<std::string> world = split(store.get("world"), ' ');
  if (world.at(1) != size) {
    const auto sentence = [&](const char* who) {
      return formatted("rank {} was told WORLD_SIZE={}, and {} {} WORLD_SIZE={}", world[0], world[1], who, self, size);
    };
    store.set("arrived/refused", sentence("rank"));
    if (is_server(environment)) std::this_thread::sleep_for(kKnownWithin / 2);
    throw Error(ErrorCode::kMismatch, sentence("this rank"), kSameSize);
  }
}

// The server adds atomically, so of two processes with the same rank, exactly one gets 1. Ranks
// that a launcher has restarted announce themselves a second time.
void claim_rank(Store& store, const Environment& environment) {
  const std::string self = std::to_string(environment.rank);
  const std::string claim = formatted("claimed/{}", self), owner = formatted("owner/{}", self);
  const bool is_first = store.add(claim, 1) == 1;
  if (is_first && !environment.run.empty()) store.set(owner, environment.run);
  const bool is_its_own = environment.is_restarted && store.check(owner) && store.get(owner) == environment.run;
  if (!is_first && !is_its_own)
    throw Error(ErrorCode::kConfig,
                formatted("another process has already announced itself as rank {} at {} (this is process {})", self,
                          place(environment), getpid()),
                "give every process its own RANK; two jobs on one machine need different values of MASTER_PORT");
}

// Sets this rank's position among `members`: its address, its hosts, its number on its machine.
void find_place(RendezvousResult& meeting, const std::vector<Member>& members, const Environment& environment) {
  const auto is_beside = [&](const Member& one) { return one.machine == members[environment.rank].machine; };
  meeting.host_address = own_address(members, environment.rank);
  if (std::any_of(members.begin(), members.end(), [&](const Member& one) { return one.machine != members[0].machine; }))
    for (const Member& member : members) meeting.hosts.push_back(member.machine.substr(0, member.machine.find_first_of(". ")));
  for (const Member& member : members)
    if (is_beside(member)) meeting.cores_of_machine.push_back(member.cores);
  const auto earlier_beside =
      static_cast<uint32_t>(std::count_if(members.begin(), members.begin() + environment.rank, is_beside));
  meeting.is_first_of_machine = earlier_beside == 0;
  meeting.local_rank = environment.local_rank.value_or(earlier_beside);
}

RendezvousResult meet_once(const Environment& environment, uint32_t generation, const Patience& patience) {
  const bool serves = is_server(environment);
  RendezvousResult meeting;
  meeting.store = open_store(environment, generation, patience);
  Store& store = *meeting.store;
  // If the ranks have already met there, rank 0 belongs to an earlier start and is about to end.
  if (environment.is_restarted && !serves && !environment.agent_store && store.check("met"))
    throw Error(ErrorCode::kPeerLost, formatted("rank 0 at {} is still that of an earlier start", place(environment)));
  check_world_size(store, environment);
  claim_rank(store, environment);
  store.set(formatted("arrived/{}", environment.rank),
            formatted("{}\n{}\n{}", address_towards(environment.master_addr), machine_identity(), own_cores()));
  const bool is_misplaced = serves && is_elsewhere(environment.master_addr);
  wait_for_ranks(store, "arrived", environment.rank, environment.world_size,
                 formatted("at the rendezvous at {}{}", place(environment),
                           is_misplaced ? ", which is not an address of rank 0's machine," : ""),
                 patience);

  if (serves) store.set("met", "");
  std::vector<Member> members;
  for (uint32_t rank = 0; rank < environment.world_size; ++rank)
    members.push_back(parse_member(store.get(formatted("arrived/{}", rank))));
  find_place(meeting, members, environment);
  return meeting;
}

}  // namespace

RendezvousResult meet(const Environment& environment, uint32_t generation, Patience patience) {
  for (;;) try {
      return meet_once(environment, generation, patience);
    } catch (const Error& error) {
      // When a program makes a second world, or ranks on several nodes are restarted, rank 0's previous
      // server may still be closing on this port.
      const bool is_second = generation > 0 || environment.is_restarted;
      const bool was_the_former = is_second && environment.rank != 0 && error.code() == ErrorCode::kPeerLost;
      if (!was_the_former || patience.left().count() <= 0) throw;
      std::this_thread::sleep_for(milliseconds(50));
    }
}

}  // namespace gannet::control
