#include "control/world.h"

#include <gannet/error.h>
#include <gannet/log.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/format.h"
#include "base/text.h"
#include "control/rendezvous.h"

namespace gannet::control {
namespace {

using std::chrono::milliseconds;

// How long rank 0 stays for ranks that still read from its store.
constexpr milliseconds kGoodbye{5'000};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    lines.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return lines;
}

// "has 'x' where rank 0 has 'y'", of the first line that differs.
std::string first_difference(const std::string& text, const std::string& reference) {
  const auto mine = lines_of(text), theirs = lines_of(reference);
  for (size_t i = 0; i < std::max(mine.size(), theirs.size()); ++i) {
    const bool same = i < mine.size() && i < theirs.size() && mine[i] == theirs[i];
    if (same) continue;
    const auto quoted = [i](const std::vector<std::string>& lines) {
      return i < lines.size() ? formatted("'{}'", lines[i]) : std::string("nothing");
    };
    return formatted("{} where rank 0 has {}", quoted(mine), quoted(theirs));
  }
  return "the same text";
}

std::string comm_name(const DistributedOptions& options, uint32_t world_size) {
  if (lower(options.comm) != "auto") return options.comm;
  return world_size == 1 ? "local" : "gloo";
}

// The plugin for numbers and texts of the host, where it is not the one that moves the device's memory: "" then.
std::string host_comm_name(const DistributedOptions& options, const Comm& comm) {
  const bool is_open = lower(options.host_comm) == lower(comm.plugin().name());
  if (lower(options.host_comm) != "auto") return is_open ? "" : options.host_comm;
  return comm.serves_host_memory() ? "" : comm.world_size() == 1 ? "local" : "gloo";
}

constexpr const char* kSameEverywhere = "start the same build with the same config and plugins on every rank";

}  // namespace

void agree(HostGroup& group, const std::string& what, const std::string& text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  std::vector<XXH128_hash_t> hashes(group.size());
  group.all_gather(&hash, hashes.data(), sizeof(hash));
  if (std::all_of(hashes.begin(), hashes.end(), [&](const XXH128_hash_t& other) { return XXH128_isEqual(other, hashes[0]); }))
    return;
  throw Error(ErrorCode::kMismatch, disagreement(what, group.gather_texts(text)), kSameEverywhere);
}

std::string disagreement(const std::string& what, const std::vector<std::string>& texts) {
  // Ranks with the same text together, in the order of their first rank.
  std::vector<std::pair<std::string, std::vector<uint32_t>>> groups;
  for (uint32_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    auto at = std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == texts[rank]; });
    if (at == groups.end()) at = groups.insert(at, {texts[rank], {}});
    at->second.push_back(rank);
  }
  if (groups.empty()) return "";
  constexpr size_t kMost = 3;
  std::vector<std::string> parts;
  for (size_t i = 0; i < std::min(groups.size(), kMost); ++i)
    parts.push_back(name_ranks(groups[i].second) + (groups[i].second.size() == 1 ? " has " : " have ") +
                    first_difference(groups[i].first, texts[0]));
  std::string sentence = formatted("the ranks differ in {}: {}", what, join(parts, "; "));
  if (groups.size() > kMost) sentence += formatted("; and {} more", groups.size() - kMost);
  return sentence;
}

std::string list_of(const std::vector<const plugin::Plugin*>& plugins) {
  std::vector<std::string> lines;
  for (const auto* plugin : plugins)
    lines.push_back(formatted("{} {}{} {} {}", plugin::kind_name(plugin->kind()), plugin->name(),
                              plugin->device().empty() ? "" : formatted("@{}", plugin->device()), plugin->version(),
                              plugin->hash));
  return join(lines, "\n");
}

World::World(const DistributedOptions& options, uint32_t generation)
    : registry_({.explicit_paths = options.plugin_paths,
                 .allowed_paths = options.plugins_allowed,
                 .trusted = options.plugins_trusted}) {
  const Variables variables = variables_of_this_process();
  environment_ = discover(variables, {options.rank, options.world_size, options.init_method});
  timeout_ = time_out(variables, options.timeout_seconds);

  gannet_rendezvous rendezvous{};
  rendezvous.struct_size = sizeof(rendezvous);
  std::string address;
  if (size() > 1) {
    Meeting meeting = meet(environment_, generation, Patience(timeout_));
    store_ = std::move(meeting.store);
    local_rank_ = meeting.local_rank;
    address = meeting.host_address;
    rendezvous.store = store_->table();
    rendezvous.host_address = address.empty() ? nullptr : address.c_str();
  } else {
    local_rank_ = environment_.local_rank.value_or(0);
  }
  const double deadline_seconds = options.deadline_seconds.value_or(static_cast<double>(timeout_.count()) / 1000);
  const milliseconds deadline(std::llround(deadline_seconds * 1000));
  if (store_) {
    watch_ = std::make_unique<Watch>(
        *store_,
        Watch::Options{
            .rank = rank(), .size = size(), .host = rank() == 0 ? address : environment_.master_addr, .deadline = deadline});
    guard_ = std::shared_ptr<void>(nullptr, [store = store_.get()](void*) { store->set_guard({}); });
    store_->set_guard([watch = watch_.get()] { watch->check(); });
  }
  rendezvous.rank = rank();
  rendezvous.world_size = size();
  rendezvous.local_rank = local_rank_;
  rendezvous.timeout_ms = static_cast<uint64_t>(std::max(timeout_, deadline).count());

  const auto open = [&](const std::string& name, const Dict& params) {
    const auto& plugin = registry_.require(GANNET_KIND_COMM, name, "");
    const auto where = [](const std::string& member) { return formatted("comm parameter '{}'", member); };
    auto comm = std::make_unique<Comm>(plugin, plugin::parse_params(plugin, params, where), host_, rendezvous);
    comm->set_watcher(watch_.get());
    return comm;
  };
  comm_ = open(comm_name(options, size()), options.comm_params);
  if (const std::string other = host_comm_name(options, *comm_); !other.empty()) host_comm_ = open(other, {});
  if (watch_)
    watch_->on_verdict([this] {
      comm_->abort();
      if (host_comm_) host_comm_->abort();
    });
  std::vector<uint32_t> everyone(size());
  for (uint32_t i = 0; i < size(); ++i) everyone[i] = i;
  links_ = std::make_unique<Links>(*this, everyone, "world");
  // Every pair of ranks is connected when this returns: rank 0, and its store, may end early from here on.
  links_->device.start(collective::barrier(), nullptr).wait();
  links_->host.barrier();
}

Links::Links(World& world, const std::vector<uint32_t>& ranks, const std::string& name)
    : device(world.comm(), ranks, name), host(world.host_comm(), ranks, name) {}

World::~World() = default;

void World::set_deadline(double seconds) {
  if (!watch_) return;
  const milliseconds deadline(std::llround(seconds * 1000));
  if (deadline > comm_->timeout())
    throw Error(
        ErrorCode::kConfig,
        formatted(
            "gannet.deadline_seconds is {}, but the ranks were connected with a time-out of {} s by an earlier init_distributed",
            deadline.count() / 1000, comm_->timeout().count() / 1000),
        "give that call .timeout_seconds or .deadline_seconds of as much");
  watch_->set_deadline(deadline);
}

// By the store: in a call, the watch says who is late and ends the wait; a background thread's wait says so itself.
void World::agree(const std::string& what, const std::string& text) {
  if (!store_) return;
  struct Wait {
    explicit Wait(Watch& watch) : watch(watch) { watch.begin_wait(); }
    ~Wait() { watch.end_wait(); }
    Watch& watch;
  } wait(*watch_);
  const milliseconds most = watch_->patience(timeout_);
  try {
    agree(what, text, Watch::is_inside() ? Patience(most, most) : Patience(most));
  } catch (const Error& failure) {
    watch_->check();
    if (failure.code() == ErrorCode::kPeerLost) watch_->explain(failure);
    throw;
  }
}

void World::agree(const std::string& what, const std::string& text, const Patience& patience) {
  const std::string key = formatted("agree/{}", agreements_++);
  store_->set(formatted("{}/{}", key, rank()), text);
  wait_for_ranks(*store_, key, rank(), size(), formatted("to compare {}", what), patience);
  // Rank 0 reads all texts and gives the verdict: the same sentence everywhere, and 2N reads instead of N^2.
  std::string verdict;
  if (rank() == 0) {
    std::vector<std::string> texts;
    for (uint32_t other = 0; other < size(); ++other) texts.push_back(store_->get(formatted("{}/{}", key, other)));
    verdict = disagreement(what, texts);
    store_->set(formatted("{}/verdict", key), verdict);
    // A verdict that nobody can read any more, because this process ended on it, would look like a lost peer.
    if (!verdict.empty()) store_->wait({formatted("{}/read", key)}, kGoodbye);
  } else {
    verdict = store_->get(formatted("{}/verdict", key));
    if (!verdict.empty() && store_->add(formatted("{}/readers", key), 1) == static_cast<int64_t>(size()) - 1)
      store_->set(formatted("{}/read", key), "");
  }
  if (!verdict.empty()) throw Error(ErrorCode::kMismatch, verdict, kSameEverywhere);
}

void World::leave() noexcept {
  if (!store_) return;
  try {
    if (store_->add("leaving", 1) == static_cast<int64_t>(size())) store_->set("left", "");
    if (rank() == 0) store_->wait({"left"}, kGoodbye);
  } catch (const Error&) {  // rank 0 has gone already, or a verdict ended all this
  }
  goodbye();
}

}  // namespace gannet::control
