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
#include "control/address_exchange.h"
#include "control/program_communicator.h"
#include "control/rendezvous.h"
#include "control/thread_share.h"

namespace gannet::control {
namespace {

using std::chrono::milliseconds;

// How long rank 0 stays alive for the ranks that still need its store.
constexpr milliseconds kGoodbye{5'000};
constexpr const char* kMpi = "mpi";  // the Comm of a program's communicator

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    lines.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return lines;
}

// Describes the first line that differs: "'x' where rank 0 has 'y'".
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

// The Comm that the options name asks the communicator, or `mpi` where that one takes none.
Environment environment_of_communicator(const DistributedOptions& options, plugin::Registry& registry, milliseconds timeout,
                                        uint32_t generation) {
  if (options.rank || options.world_size || !options.init_method.empty())
    throw Error(ErrorCode::kArgument, "init_distributed was given a communicator, and a rank, a world size or an init_method",
                "give only the communicator: it has the ranks");
  const plugin::Plugin& named = registry.require(GANNET_KIND_COMM, lower(options.comm) == "auto" ? kMpi : options.comm, "");
  const plugin::Plugin& its = communicator_extension(named) ? named : registry.require(GANNET_KIND_COMM, kMpi, "");
  return environment_of(its, &*options.mpi_communicator, timeout, generation);
}

// The Comm that "auto" selects for host memory.
std::string for_host_memory(uint32_t world_size) { return world_size == 1 ? "local" : "gloo"; }

// The key of a Comm: requests with the same key share one.
std::string key_of(const plugin::Plugin& comm, const CommDevice* device) {
  return device ? formatted("{} on {} {}", lower(comm.name()), lower(device->accelerator), device->index) : lower(comm.name());
}

// A Comm is opened once, so the params of later requests must match those that it was opened with.
// A request may leave params out.
void require_same_params(const plugin::Plugin& plugin, const Dict& wanted, const Dict& opened_with) {
  for (const auto& [key, value] : wanted.entries()) {
    const Value* const has = opened_with.find(key);
    if (has && has->to_json() == value.to_json()) continue;
    throw Error(ErrorCode::kConfig,
                formatted("comm plugin '{}' is asked for with the parameter '{}' {}, but an earlier call opened it with {}",
                          plugin.name(), key, value.to_json(), has ? has->to_json() : "its default"),
                "give the first init_distributed() or initialize() the same comm and params");
  }
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
  // The ranks that differ from rank 0, grouped by their text, in the order of each group's first
  // rank.
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
  timeout_ = time_out(variables, options.timeout_seconds);
  mpi_communicator_ = options.mpi_communicator;
  environment_ = mpi_communicator_ ? environment_of_communicator(options, registry_, timeout_, generation)
                                   : discover(variables, {options.rank, options.world_size, options.init_method});

  meet_others(variables, generation);
  watch_others(options);
  open_host_comms(options);
  std::vector<uint32_t> everyone(size());
  for (uint32_t i = 0; i < size(); ++i) everyone[i] = i;
  links_ = std::make_unique<Links>(*this, everyone, "world");
  // After this barrier all pairs of ranks are connected, so rank 0 and its store may end early.
  if (serves_host_memory(registry_.require(GANNET_KIND_COMM, comm_name_, ""))) links_->device();
  links_->host.barrier();
}

void World::meet_others(const Variables& variables, uint32_t generation) {
  rendezvous_.struct_size = sizeof(rendezvous_);
  if (size() > 1) {
    if (environment_.exchanges) find_rank_zero(variables, environment_);
    // The ranks of a communicator may have made different numbers of worlds; its job counts those of rank 0.
    RendezvousResult meeting = meet(environment_, mpi_communicator_ ? 0 : generation, Patience(timeout_));
    store_ = std::move(meeting.store);
    local_rank_ = meeting.local_rank;
    host_address_ = meeting.host_address;
    hosts_ = std::move(meeting.hosts);
    share_threads(meeting.cores_of_machine, meeting.is_first_of_machine);
    rendezvous_.store = store_->table();
    rendezvous_.host_address = host_address_.empty() ? nullptr : host_address_.c_str();
  } else {
    local_rank_ = environment_.local_rank.value_or(0);
    if (const uint32_t tasks = find(variables, "RANK") ? 0 : tasks_without_srun(variables); tasks > 0)
      log_info(formatted("one process; `srun PROGRAM` would start the {} tasks of this Slurm job as ranks", tasks));
  }
}

void World::watch_others(const DistributedOptions& options) {
  const double deadline_seconds = options.deadline_seconds.value_or(static_cast<double>(timeout_.count()) / 1000);
  const milliseconds deadline(std::llround(deadline_seconds * 1000));
  if (store_) {
    watch_ = std::make_unique<Watch>(*store_, Watch::Options{.rank = rank(),
                                                             .size = size(),
                                                             .host = rank() == 0 ? host_address_ : environment_.master_addr,
                                                             .deadline = deadline,
                                                             .hosts = std::move(hosts_)});
    guard_ = std::shared_ptr<void>(nullptr, [store = store_.get()](void*) { store->set_guard({}); });
    store_->set_guard([watch = watch_.get()] { watch->check(); });
  }
  rendezvous_.rank = rank();
  rendezvous_.world_size = size();
  rendezvous_.local_rank = local_rank_;
  rendezvous_.timeout_ms = static_cast<uint64_t>(std::max(timeout_, deadline).count());
}

void World::open_host_comms(const DistributedOptions& options) {
  const bool is_auto = lower(options.comm) == "auto";
  comm_is_auto_ = is_auto && !mpi_communicator_;  // a program that gives a communicator wants tensors to move over it
  comm_name_ = !is_auto ? options.comm : mpi_communicator_ && size() > 1 ? kMpi : for_host_memory(size());
  comm_params_ = options.comm_params;
  // A Comm for device memory is opened later, by the engine that trains on the device: no device is
  // chosen yet.
  const plugin::Plugin& named = registry_.require(GANNET_KIND_COMM, comm_name_, "");
  if (serves_host_memory(named)) host_comm_ = &open(named, comm_params_, nullptr);
  if (lower(options.host_comm) != "auto" || !host_comm_) {
    const std::string host = lower(options.host_comm) != "auto" ? options.host_comm : for_host_memory(size());
    if (!host_comm_ || lower(host) != lower(comm_name_))
      host_comm_ = &open(registry_.require(GANNET_KIND_COMM, host, ""), {}, nullptr);
  }
  if (watch_)
    watch_->on_verdict([this] {
      const std::lock_guard lock(comms_mutex_);
      for (OpenedComm& one : comms_) one.comm->abort();
    });
}

uint32_t World::next_engine_in(const std::string& group) {
  const std::lock_guard lock(comms_mutex_);
  return engines_[group]++;
}

const plugin::Plugin& World::require_comm(const std::string& name, const CommDevice& device) {
  for (const std::string& memory : {device.accelerator, device.plugin_device})
    if (!memory.empty())
      if (const plugin::Plugin* found = registry_.find(GANNET_KIND_COMM, name, memory)) return *found;
  return registry_.require(GANNET_KIND_COMM, name, "");
}

Comm& World::open(const plugin::Plugin& plugin, const Dict& params, const CommDevice* device) {
  const auto where = [](const std::string& member) { return formatted("comm parameter '{}'", member); };
  OpenedComm opened{.key = key_of(plugin, device), .params = params, .accelerator = nullptr, .comm = nullptr};
  gannet_rendezvous rendezvous = rendezvous_;
  if (device) {
    const plugin::Plugin& its = registry_.require(GANNET_KIND_ACCELERATOR, device->accelerator, "");
    opened.accelerator = std::make_unique<Accelerator>(its, plugin::parse_params(its, device->params, where), host_);
    rendezvous.device = device->index;
    rendezvous.accelerator = opened.accelerator->api();
    rendezvous.accelerator_self = opened.accelerator->self();
  }
  opened.comm = std::make_unique<Comm>(plugin, plugin::parse_params(plugin, params, where), host_, rendezvous);
  opened.comm->set_watcher(watch_.get());
  if (mpi_communicator_ && communicator_extension(plugin)) opened.comm->set_communicator(&*mpi_communicator_);
  const std::lock_guard lock(comms_mutex_);
  return *comms_.emplace_back(std::move(opened)).comm;
}

Comm& World::open_comm(const std::string& name, const Dict& params, const CommDevice& device) {
  const plugin::Plugin& plugin = require_comm(name, device);
  const CommDevice* const its_own = serves_host_memory(plugin) ? nullptr : &device;
  const std::string key = key_of(plugin, its_own);
  for (OpenedComm& one : comms_)
    if (one.key == key) {
      require_same_params(plugin, params, one.params);
      return *one.comm;
    }
  if (comm_params_.empty() || lower(plugin.name()) != lower(comm_name_)) return open(plugin, params, its_own);
  require_same_params(plugin, params, comm_params_);
  return open(plugin, comm_params_, its_own);
}

void World::require_same(const DistributedOptions& later) {
  const auto require_name = [](const char* what, const std::string& wanted, const std::string& open) {
    if (lower(wanted) == "auto" || lower(wanted) == lower(open)) return;
    throw Error(
        ErrorCode::kConfig,
        formatted("{} '{}' is asked for, but the world was made with '{}' by an earlier init_distributed", what, wanted, open),
        "ask for it in the first call, or call destroy_distributed before");
  };
  if (later.mpi_communicator && later.mpi_communicator != mpi_communicator_)
    throw Error(ErrorCode::kArgument,
                formatted("init_distributed is given a communicator, and the world was made {}",
                          mpi_communicator_ ? "with another one" : "without it"),
                "call destroy_distributed before, or give it in the first call");
  require_name("host comm", later.host_comm, host_comm_->plugin().name());
  // A world whose comm is "auto" may still open the requested Comm for a device: the engine that
  // trains on the device does that.
  if (comm_is_auto_ && lower(later.comm) != "auto" && !serves_host_memory(registry_.require(GANNET_KIND_COMM, later.comm, "")))
    return;
  require_name("comm", later.comm, comm_name_);
  require_same_params(registry_.require(GANNET_KIND_COMM, comm_name_, ""), later.comm_params, comm_params_);
}

Comm& World::comm() {
  for (OpenedComm& one : comms_)
    if (lower(one.comm->plugin().name()) == lower(comm_name_)) return *one.comm;
  throw Error(ErrorCode::kOrder,
              formatted("comm plugin '{}' moves the memory of a device, and no engine has opened it yet", comm_name_),
              "call gannet::initialize first");
}

Links::Links(World& world, const std::vector<uint32_t>& ranks, const std::string& name)
    : host(world.host_comm(), ranks, name), world_(world) {}

CommGroup& Links::over(Comm& comm) {
  auto& group = groups_[&comm];
  if (!group) {
    group = std::make_unique<CommGroup>(comm, host.ranks(), host.name());
    // After this barrier all pairs of members are connected, so rank 0 and its store may end early.
    group->start(collective::barrier(), nullptr).wait();
  }
  return *group;
}

CommGroup& Links::device() { return over(world_.comm()); }

World::~World() = default;

void World::set_deadline(double seconds) {
  if (!watch_) return;
  const milliseconds deadline(std::llround(seconds * 1000));
  if (deadline > host_comm_->timeout())
    throw Error(
        ErrorCode::kConfig,
        formatted(
            "gannet.deadline_seconds is {}, but the ranks were connected with a time-out of {} s by an earlier init_distributed",
            deadline.count() / 1000, host_comm_->timeout().count() / 1000),
        "give that call .timeout_seconds or .deadline_seconds of as much");
  watch_->set_deadline(deadline);
}

// Compares the texts through the store. Inside a call, the watch names late ranks and ends the
// wait; on a background thread, this function reports them itself.
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
  // Only rank 0 reads all texts and compares them, so all ranks get the same message, with 2N reads
  // instead of N^2.
  std::string verdict;
  if (rank() == 0) {
    std::vector<std::string> texts;
    for (uint32_t other = 0; other < size(); ++other) texts.push_back(store_->get(formatted("{}/{}", key, other)));
    verdict = disagreement(what, texts);
    store_->set(formatted("{}/verdict", key), verdict);
    // Waits until all ranks have read the verdict: if this process ended earlier, the others would
    // report a lost peer instead.
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
  } catch (const Error&) {  // rank 0 is already gone, or a verdict ended the world
  }
  goodbye();
}

}  // namespace gannet::control
