// Comm plugin "mpi": collectives of host memory over the MPI library of the process, or of the
// launcher that started it. This file links no MPI: it opens gannet_mpi_openmpi.so or
// gannet_mpi_mpich.so from the folder `mpi` beside it, which are one source, built with the headers
// of each library.
//
//   {"communication": {"type": "mpi"}}          mpirun -n 4 ./train
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <gannet/sdk_comm.hpp>

namespace {

using gannet::sdk::Failure;

struct Library {
  const char* name;
  const char* soname;
  const char* variable;  // that its launcher sets
};
constexpr std::array<Library, 2> kLibraries = {
    {{"openmpi", "libmpi.so.40", "OMPI_COMM_WORLD_SIZE"}, {"mpich", "libmpich.so.12", "PMI_SIZE"}}};

// The tables that gannet_mpi_openmpi.so or gannet_mpi_mpich.so exports.
struct Tables {
  const gannet_comm_api* comm;
  const gannet_communicator_extension* communicator;
};
// A process has one MPI library, and so one of ours.
std::atomic<const Tables*> opened{nullptr};

std::string folder() {
  Dl_info own{};
  ::dladdr(reinterpret_cast<const void*>(&folder), &own);
  const std::string file = own.dli_fname ? own.dli_fname : "";
  return file.substr(0, file.rfind('/') + 1) + "mpi/";
}

const Tables* open(const Library& library, std::string& failures) {
  // Open MPI's own plugins look for its symbols in the global scope.
  void* const mpi = ::dlopen(library.soname, RTLD_NOW | RTLD_GLOBAL);
  const std::string file = folder() + "gannet_mpi_" + library.name + ".so";
  void* const ours = mpi ? ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (!ours) {
    failures += std::string(failures.empty() ? "" : "; ") + library.name + ": " + ::dlerror();
    return nullptr;
  }
  const auto comm = reinterpret_cast<const gannet_comm_api* (*)()>(::dlsym(ours, "gannet_mpi_comm"));
  const auto communicator =
      reinterpret_cast<const gannet_communicator_extension* (*)()>(::dlsym(ours, "gannet_mpi_communicator"));
  static const Tables tables{comm(), communicator()};
  return &tables;
}

bool is_loaded(const Library& library) { return ::dlopen(library.soname, RTLD_NOW | RTLD_NOLOAD) != nullptr; }

// Whether MPI knows of other ranks: without a launcher MPI_Init makes a world of one.
bool is_launched() {
  for (const Library& library : kLibraries)
    if (is_loaded(library) || std::getenv(library.variable)) return true;
  return std::getenv("PMIX_RANK") != nullptr;
}

// The library that the process has loaded, the one that the params name, the launcher's, or any.
const Tables* choose(const std::string& wanted) {
  std::string failures;
  for (const Library& library : kLibraries) {
    if (!is_loaded(library)) continue;
    if (wanted != "auto" && wanted != library.name)
      throw Failure(GANNET_INVALID_ARGUMENT, std::string("comm plugin 'mpi': the process has loaded ") + library.soname +
                                                 ", and params name library '" + wanted + "': remove it from the params");
    if (const Tables* tables = open(library, failures)) return tables;
    throw Failure(GANNET_UNAVAILABLE, "comm plugin 'mpi' cannot use the MPI library of the process: " + failures);
  }
  for (const bool by_launcher : {true, false})
    for (const Library& library : kLibraries) {
      if (wanted != "auto" && wanted != library.name) continue;
      if (wanted == "auto" && by_launcher != (std::getenv(library.variable) != nullptr)) continue;
      if (const Tables* tables = open(library, failures)) return tables;
    }
  throw Failure(GANNET_UNAVAILABLE, "comm plugin 'mpi' found no MPI library (" + failures +
                                        "): install openmpi-bin or mpich, or name the Comm 'gloo'");
}

constexpr gannet_param_spec kParams[] = {gannet::sdk::text(
    "library", "\"auto\"", "auto|openmpi|mpich", "the MPI library; auto: the one that the process or its launcher uses")};

template <auto member>
struct Through;
template <class Result, class... Arguments, Result (*gannet_comm_api::*member)(Arguments...)>
struct Through<member> {
  static Result call(Arguments... arguments) { return (opened.load()->comm->*member)(arguments...); }
};

int32_t create(const gannet_host* host, const gannet_params* params, const gannet_rendezvous* rendezvous, void** self,
               gannet_error* error) {
  const int32_t status = gannet::sdk::guarded(error, [&] {
    if (rendezvous->world_size > 1 && !is_launched())
      throw Failure(GANNET_UNSUPPORTED, "comm plugin 'mpi': no MPI launcher started this process, and its world has " +
                                            std::to_string(rendezvous->world_size) +
                                            " ranks: start the program with mpirun, or " + "name the Comm 'gloo'");
    if (!opened.load()) opened = choose(gannet::sdk::Params(*params).text("library"));
  });
  return status == GANNET_OK ? opened.load()->comm->create(host, params, rendezvous, self, error) : status;
}

// The program has a communicator, so its library is loaded.
int32_t open_loaded(gannet_error* error) {
  return gannet::sdk::guarded(error, [&] {
    if (!opened.load()) opened = choose("auto");
  });
}
int32_t describe_communicator(const void* handle, uint32_t* rank, uint32_t* size, gannet_error* error) {
  const int32_t status = open_loaded(error);
  return status == GANNET_OK ? opened.load()->communicator->describe(handle, rank, size, error) : status;
}
int32_t broadcast(const void* handle, void* data, uint64_t bytes, uint64_t timeout_ms, gannet_error* error) {
  const int32_t status = open_loaded(error);
  return status == GANNET_OK ? opened.load()->communicator->broadcast(handle, data, bytes, timeout_ms, error) : status;
}
constexpr gannet_communicator_extension kCommunicator = {
    {sizeof(gannet_communicator_extension), GANNET_EXTENSION_COMMUNICATOR, 0, 0, nullptr}, describe_communicator, broadcast};

constexpr gannet_comm_api kTable = [] {
  gannet_comm_api table{};
  table.struct_size = sizeof(table);
  table.version = GANNET_COMM_VERSION;
  table.create = create;
#define THROUGH(function) table.function = Through<&gannet_comm_api::function>::call
  THROUGH(destroy);
  THROUGH(group_create);
  THROUGH(group_destroy);
  THROUGH(collective);
  THROUGH(collective_many);
  THROUGH(work_wait);
  THROUGH(work_query);
  THROUGH(work_block);
  THROUGH(work_free);
  THROUGH(abort);
  THROUGH(counters);
  THROUGH(sum_dtype);
#undef THROUGH
  return table;
}();

constexpr gannet_descriptor kPlugin = [] {
  gannet_descriptor plugin =
      gannet::sdk::describe(GANNET_KIND_COMM, GANNET_TIER_STABLE, "mpi", "cpu", "0.1.0", "",
                            "the MPI library of the process or of its launcher", kParams, std::size(kParams), &kTable);
  plugin.extensions = &kCommunicator.head;
  return plugin;
}();

}  // namespace

GANNET_PLUGINS("comm/mpi@cpu", GANNET_TIER_STABLE, kPlugin)
