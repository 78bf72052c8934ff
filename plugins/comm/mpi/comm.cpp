// The Comm over one MPI library. It is built once for each (Open MPI, MPICH): their headers have
// other constants. mpi.cpp, the plugin, opens the one that fits the process.
#include <array>
#include <cstdlib>
#include <gannet/sdk_comm.hpp>
#include <gannet/sdk_store.hpp>
#include <map>
#include <mutex>

#include "operations.h"
#include "runtime.h"

namespace gannet_mpi {
namespace {

using gannet::sdk::Collective;
using gannet::sdk::Failure;

std::string in_group(const std::string& name, uint32_t rank, uint32_t size) {
  return " in group '" + name + "' (rank " + std::to_string(rank) + " of " + std::to_string(size) + ")";
}

// An MPI library: its name, the variable that its mpirun sets, that mpirun's name in Debian, and the value of "library".
struct Named {
  const char *name, *variable, *mpirun, *param;
};
constexpr Named kOpenMpi{"Open MPI", "OMPI_COMM_WORLD_SIZE", "mpirun.openmpi", "openmpi"},
    kMpich{"MPICH", "PMI_SIZE", "mpirun.mpich", "mpich"};
#ifdef OPEN_MPI
constexpr const Named &kOwn = kOpenMpi, &kOther = kMpich;
#else
constexpr const Named &kOwn = kMpich, &kOther = kOpenMpi;
#endif

constexpr uint64_t kSoon = 60'000;  // ms, for calls that wait for no other rank

// A communicator of this plugin's own. MPI_COMM_NULL until one is made.
struct Communicator {
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  ~Communicator() {
    int is_finalized = 0;
    MPI_Finalized(&is_finalized);
    if (comm == MPI_COMM_NULL || is_finalized) return;
    try {
      // This waits, because the program may call MPI_Finalize next.
      Runtime::get().run("MPI_Comm_free", kSoon, [comm = comm]() mutable { MPI_Comm_free(&comm); });
    } catch (...) {
    }
  }
  MPI_Comm comm = MPI_COMM_NULL;
};

MPI_Comm of_program(const void* handle) { return MPI_Comm_f2c(*static_cast<const MPI_Fint*>(handle)); }

// The ranks' numbers in MPI_COMM_WORLD, which they tell each other through the store: a program may
// train with some of its processes, in an order of its own.
class WorldNumbers {
 public:
  WorldNumbers(const gannet_store* store, uint32_t rank, uint64_t timeout_ms) : store_(store), timeout_ms_(timeout_ms) {
    if (!store_) return;
    const auto own = std::make_shared<int>(0);
    Runtime::get().run("MPI_Comm_rank", timeout_ms,
                       [own] { require(MPI_Comm_rank(MPI_COMM_WORLD, own.get()), "MPI_Comm_rank"); });
    store_.set(key_of(rank), std::to_string(*own));
  }
  int of(uint32_t rank) {
    const auto known = numbers_.find(rank);
    if (known != numbers_.end()) return known->second;
    store_.wait(key_of(rank), timeout_ms_);
    return numbers_[rank] = std::stoi(store_.get(key_of(rank)));
  }

 private:
  static std::string key_of(uint32_t rank) { return "mpi/rank " + std::to_string(rank); }
  const gannet::sdk::Store store_;
  uint64_t timeout_ms_;
  std::map<uint32_t, int> numbers_;
};

class Mpi : public gannet::sdk::CommBase {
 public:
  static constexpr bool kTakesHandles = true;
  struct Group {
    std::shared_ptr<Communicator> of;  // null: a group of one rank
    std::string name;
  };
  struct Work {
    bool wait(uint64_t timeout_ms) { return !pending || pending->wait(timeout_ms); }
    bool is_over() { return !pending || pending->is_over(); }
    std::shared_ptr<Pending> pending;  // null: it is over
  };
  static constexpr std::array<gannet_param_spec, 0> kParams{};

  Mpi(const gannet_host& host, const gannet::sdk::Params& params, const gannet_rendezvous& rendezvous)
      : CommBase(host, params, rendezvous),
        owner_(rendezvous.world_size > 1 ? Runtime::get().new_owner() : 0),
        numbers_(rendezvous.world_size > 1 ? rendezvous.store : nullptr, rendezvous.rank, rendezvous.timeout_ms) {
    if (rendezvous.world_size > 1) require_launched();
  }

  std::unique_ptr<Group> make_group(const std::vector<uint32_t>& ranks, uint32_t, const std::string& name, void* external) {
    auto group = std::make_unique<Group>(Group{nullptr, name});
    if (ranks.size() == 1) return group;  // copies, without MPI
    group->of = std::make_shared<Communicator>();
    if (external && !base_) {
      // The world's first group. Later ones are made within the duplicate, beside the program's own
      // collectives.
      base_ = group->of;
      Runtime::get().run("MPI_Comm_dup of the program's communicator", timeout_ms(), [made = base_, from = of_program(external)] {
        require(MPI_Comm_dup(from, &made->comm), "MPI_Comm_dup of the program's communicator");
        MPI_Comm_set_errhandler(made->comm, MPI_ERRORS_RETURN);
      });
      return group;
    }
    std::vector<int> members;
    for (const uint32_t rank : ranks) members.push_back(base_ ? static_cast<int>(rank) : numbers_.of(rank));
    Runtime::get().run("creating group '" + name + "'", timeout_ms(), [made = group->of, base = base_, members, name] {
      const MPI_Comm from = base ? base->comm : MPI_COMM_WORLD;
      MPI_Group all = MPI_GROUP_NULL, chosen = MPI_GROUP_NULL;
      require(MPI_Comm_group(from, &all), "MPI_Comm_group");
      require(MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &chosen), "MPI_Group_incl");
      const int tag = static_cast<int>(std::hash<std::string>()(name) % 32000);  // groups that are made at once differ in name
      require(MPI_Comm_create_group(from, chosen, tag, &made->comm), "creating group '" + name + "'");
      MPI_Comm_set_errhandler(made->comm, MPI_ERRORS_RETURN);
      MPI_Group_free(&chosen);
      MPI_Group_free(&all);
    });
    return group;
  }

  std::unique_ptr<Work> start(Group& group, const Collective& c) {
    if (!group.of) {
      gannet::sdk::do_alone(c);
      return std::make_unique<Work>();
    }
    Operation operation = operation_of(c, group.of->comm);
    count_least_traffic(c);
    std::string doing = gannet::sdk::name_of_collective(c.op);
    if (c.op != GANNET_BARRIER) doing += " of " + std::to_string(c.bytes()) + " bytes";
    return std::make_unique<Work>(Work{Runtime::get().start(owner_, doing + in_group(group.name, c.rank, c.size),
                                                            std::move(operation.issue), std::move(operation.then))});
  }
  void abort() {
    if (owner_ > 0) Runtime::get().abort(owner_);
  }

 private:
  // The ranks are some of MPI_COMM_WORLD, also where the program gives its communicator.
  void require_launched() {
    const auto size = std::make_shared<int>(0);
    Runtime::get().run("MPI_Comm_size", timeout_ms(),
                       [size] { require(MPI_Comm_size(MPI_COMM_WORLD, size.get()), "MPI_Comm_size"); });
    if (world_size() <= static_cast<uint32_t>(*size)) return;
    const std::string ranks = std::to_string(world_size());
    if (std::getenv(kOther.variable) && !std::getenv(kOwn.variable))
      throw Failure(GANNET_UNSUPPORTED, std::string("comm plugin 'mpi': this world has ") + ranks + " ranks, which " +
                                            kOther.name + "'s mpirun started, and the process uses " + kOwn.name +
                                            ", which knows of " + std::to_string(*size) + ": start it with " + kOwn.name +
                                            "'s mpirun (" + kOwn.mpirun + "), or use " + kOther.name +
                                            ": \"params\": {\"library\": \"" + kOther.param +
                                            "\"}, and a program that is not linked to " + kOwn.name);
    throw Failure(GANNET_UNSUPPORTED, "comm plugin 'mpi': this world has " + ranks + " ranks, and MPI has started " +
                                          std::to_string(*size) + ": start the program with mpirun -n " + ranks);
  }

  const uint64_t owner_;
  WorldNumbers numbers_;
  std::shared_ptr<Communicator> base_;  // of the program's communicator; null: groups are made within MPI_COMM_WORLD
};

// ---- The program's communicator, before there is a world ----------------------------------------------------------------

int32_t describe(const void* handle, uint32_t* rank, uint32_t* size, gannet_error* error) {
  return gannet::sdk::guarded(error, [&] {
    struct CommunicatorInfo {
      int rank = 0, size = 0, is_between_two = 0;
    };
    const auto found = std::make_shared<CommunicatorInfo>();
    const MPI_Fint given = *static_cast<const MPI_Fint*>(handle);
    Runtime::get().run("MPI_Comm_rank of the program's communicator", kSoon, [found, given] {
      const MPI_Comm comm = MPI_Comm_f2c(given);
      if (comm == MPI_COMM_NULL)
        throw Failure(GANNET_INVALID_ARGUMENT,
                      "comm plugin 'mpi': the program's communicator is MPI_COMM_NULL: only its members train on it");
      require(MPI_Comm_test_inter(comm, &found->is_between_two), "MPI_Comm_test_inter");
      if (found->is_between_two)
        throw Failure(GANNET_INVALID_ARGUMENT,
                      "comm plugin 'mpi': the program's communicator is an inter-communicator: merge it by MPI_Intercomm_merge");
      require(MPI_Comm_rank(comm, &found->rank), "MPI_Comm_rank");
      require(MPI_Comm_size(comm, &found->size), "MPI_Comm_size");
    });
    *rank = static_cast<uint32_t>(found->rank);
    *size = static_cast<uint32_t>(found->size);
  });
}

int32_t broadcast(const void* handle, void* data, uint64_t bytes, uint64_t timeout_ms, gannet_error* error) {
  return gannet::sdk::guarded(error, [&] {
    Runtime& mpi = Runtime::get();
    // Memory of its own: after a time-out MPI may still write to it.
    const auto copy = std::make_shared<std::string>(static_cast<const char*>(data), bytes);
    const auto pending = mpi.start(
        0, "the broadcast of rank 0's address over the program's communicator",
        [copy, comm = of_program(handle)] {
          MPI_Request request = MPI_REQUEST_NULL;
          require(MPI_Ibcast(copy->data(), static_cast<int>(copy->size()), MPI_BYTE, 0, comm, &request), "MPI_Ibcast");
          return Requests{request};
        },
        [copy] {});
    if (!pending->wait(timeout_ms))
      throw Failure(GANNET_TIMEOUT, "not every rank of the program's communicator has called init_distributed within " +
                                        std::to_string(timeout_ms / 1000) + " s");
    std::copy(copy->begin(), copy->end(), static_cast<char*>(data));
  });
}

constexpr gannet_communicator_extension kCommunicator = {
    {sizeof(gannet_communicator_extension), GANNET_EXTENSION_COMMUNICATOR, 0, 0, nullptr}, describe, broadcast};

}  // namespace
}  // namespace gannet_mpi

extern "C" __attribute__((visibility("default"))) const gannet_comm_api* gannet_mpi_comm() {
  return &gannet::sdk::detail::kCommApi<gannet_mpi::Mpi>;
}
extern "C" __attribute__((visibility("default"))) const gannet_communicator_extension* gannet_mpi_communicator() {
  return &gannet_mpi::kCommunicator;
}
