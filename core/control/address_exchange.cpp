#include "control/address_exchange.h"

#include <dlfcn.h>
#include <gannet/error.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <mutex>
#include <sstream>
#include <vector>

#include "base/format.h"
#include "control/network.h"

namespace gannet::control {
namespace {

constexpr const char* kKey = "gannet-rank-0";
constexpr const char* kExport =
    "export MASTER_ADDR (a name or address of the machine that rank 0 runs on) and MASTER_PORT (a free port there)";

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorCode::kUnavailable,
              formatted("the ranks cannot tell each other where rank 0 is through their launcher: {}", what), kExport);
}

// ---- PMI-1: lines of "cmd=... name=value", over a socket that the launcher left open

class Pmi1 {
 public:
  explicit Pmi1(int descriptor) : descriptor_(descriptor) {
    ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init");
    space_ = value_in(ask("cmd=get_my_kvsname", "my_kvsname"), "kvsname");
  }
  // Without "finalize", the launcher would mistake the end of this process for a crash.
  ~Pmi1() {
    try {
      ask("cmd=finalize", "finalize_ack");
    } catch (const Error&) {  // the launcher is gone
    }
  }
  void put(const std::string& key, const std::string& value) {
    ask(formatted("cmd=put kvsname={} key={} value={}", space_, key, value), "put_result");
  }
  void fence() { ask("cmd=barrier_in", "barrier_out"); }
  std::string get(const std::string& key) {
    return value_in(ask(formatted("cmd=get kvsname={} key={}", space_, key), "get_result"), "value");
  }

 private:
  std::string ask(const std::string& line, const std::string& answer) {
    const std::string text = line + "\n";
    for (size_t done = 0; done < text.size();) {
      const ssize_t count = write(descriptor_, text.data() + done, text.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) fail(formatted("PMI: {}", std::strerror(errno)));
      done += static_cast<size_t>(count);
    }
    std::string read_line;
    for (char letter = 0; letter != '\n';) {
      const ssize_t count = read(descriptor_, &letter, 1);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) fail(formatted("PMI: no answer to '{}'", line));
      read_line += letter;
    }
    if (value_in(read_line, "cmd") != answer || value_in(read_line, "rc").find_first_not_of('0') != std::string::npos)
      fail(formatted("PMI: '{}' was answered by '{}'", line, read_line.substr(0, read_line.size() - 1)));
    return read_line;
  }
  static std::string value_in(const std::string& line, const std::string& name) {
    std::istringstream words(line);
    for (std::string word; words >> word;)
      if (word.starts_with(name + "=")) return word.substr(name.size() + 1);
    return "";
  }
  int descriptor_;
  std::string space_;
};

// ---- PMIx, through the library that is installed on this machine

// pmix_proc_t and pmix_value_t of PMIx 2 and later, reduced to what these calls need.
struct PmixProc {
  char name_space[256];
  uint32_t rank;
};
struct PmixValue {
  uint16_t type;
  union alignas(8) {
    char* string;
    char room[56];
  };
};
constexpr uint16_t kPmixString = 3;
constexpr uint8_t kPmixGlobal = 3;

class Pmix {
 public:
  Pmix() : library_(dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL)) {
    if (!library_) fail(formatted("PMIx: {}", dlerror()));
    check("PMIx_Init", function<int(PmixProc*, void*, size_t)>("PMIx_Init")(&self_, nullptr, 0));
  }
  ~Pmix() { function<int(void*, size_t)>("PMIx_Finalize")(nullptr, 0); }
  void put(const std::string& key, const std::string& value) {
    PmixValue text{};
    text.type = kPmixString;
    text.string = const_cast<char*>(value.c_str());
    check("PMIx_Put", function<int(uint8_t, const char*, PmixValue*)>("PMIx_Put")(kPmixGlobal, padded(key).data(), &text));
    check("PMIx_Commit", function<int()>("PMIx_Commit")());
  }
  void fence() {
    check("PMIx_Fence", function<int(const PmixProc*, size_t, void*, size_t)>("PMIx_Fence")(nullptr, 0, nullptr, 0));
  }
  std::string get(const std::string& key) {
    PmixProc first = self_;
    first.rank = 0;
    PmixValue* value = nullptr;
    check("PMIx_Get", function<int(const PmixProc*, const char*, void*, size_t, PmixValue**)>("PMIx_Get")(
                          &first, padded(key).data(), nullptr, 0, &value));
    if (!value || value->type != kPmixString) fail("PMIx: no text arrived");
    return value->string;
  }

 private:
  template <class Function>
  Function* function(const char* name) const {
    void* const address = dlsym(library_, name);
    if (!address) fail(formatted("PMIx: {}", dlerror()));
    return reinterpret_cast<Function*>(address);
  }
  static void check(const char* call, int status) {
    if (status != 0) fail(formatted("{} returned {}", call, status));
  }
  static std::array<char, 512> padded(const std::string& key) {  // pmix_key_t
    std::array<char, 512> text{};
    key.copy(text.data(), text.size() - 1);
    return text;
  }
  void* library_;  // stays open: its threads may live until the process ends
  PmixProc self_{};
};

template <class Launcher>
std::string pass(Launcher&& launcher, const std::optional<std::string>& own) {
  if (own) launcher.put(kKey, *own);
  launcher.fence();
  return own ? *own : launcher.get(kKey);
}

bool has_pmix(const Variables& variables) {
  return find(variables, "PMIX_NAMESPACE") && std::any_of(variables.begin(), variables.end(), [](const auto& variable) {
           return variable.first.starts_with("PMIX_SERVER_URI");
         });
}

}  // namespace

bool can_exchange(const Variables& variables) {
  if (has_pmix(variables)) return true;
  return find(variables, "PMI_FD") && !dlsym(RTLD_DEFAULT, "MPI_Init");
}

std::string exchanged(const Variables& variables, const std::optional<std::string>& own) {
  static std::mutex mutex;
  static std::string result;
  const std::lock_guard lock(mutex);
  // A place contains spaces, which separate the fields of PMI-1.
  const auto swapped = [](std::string text, char from, char to) {
    std::replace(text.begin(), text.end(), from, to);
    return text;
  };
  if (!result.empty()) return result;
  const std::optional<std::string> sent = own ? std::optional(swapped(*own, ' ', ',')) : std::nullopt;
  const std::string received =
      has_pmix(variables) ? pass(Pmix(), sent)
                          : pass(Pmi1(static_cast<int>(number("PMI_FD", *find(variables, "PMI_FD"), 1 << 20, kExport))), sent);
  return result = swapped(received, ',', ' ');
}

namespace {

struct Interface {
  uint32_t address, mask;  // in host byte order
};

std::string text_of(uint32_t address) {
  return formatted("{}.{}.{}.{}", address >> 24, address >> 16 & 255, address >> 8 & 255, address & 255);
}

std::vector<Interface> interfaces() {
  ifaddrs* list = nullptr;
  std::vector<Interface> found;
  if (getifaddrs(&list) != 0) return found;
  for (const ifaddrs* one = list; one; one = one->ifa_next) {
    if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET || !one->ifa_netmask) continue;
    const auto of = [](const sockaddr* address) { return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr); };
    if (of(one->ifa_addr) >> 24 != 127) found.push_back({of(one->ifa_addr), of(one->ifa_netmask)});
  }
  freeifaddrs(list);
  return found;
}

std::optional<uint32_t> parsed(const std::string& text) {
  std::istringstream stream(text);
  uint32_t address = 0;
  for (int part = 0; part < 4; ++part) {
    uint32_t value = 0;
    if (part > 0 && stream.get() != '.') return std::nullopt;
    if (!(stream >> value) || value > 255) return std::nullopt;
    address = address << 8 | value;
  }
  return stream.peek() == std::char_traits<char>::eof() ? std::optional(address) : std::nullopt;
}

std::vector<std::string> words_of(const std::string& place) {
  std::istringstream stream(place.substr(0, place.rfind(':')));
  return {std::istream_iterator<std::string>(stream), {}};
}

}  // namespace

std::string own_place(uint16_t port) {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  std::string place = name.data();
  for (const Interface& one : interfaces()) place += formatted(" {}", text_of(one.address));
  return formatted("{}:{}", place, port);
}

std::string address_in(const std::string& place) {
  const std::vector<std::string> words = words_of(place), here = words_of(own_place(0));
  for (size_t i = 1; i < words.size(); ++i) {
    // Skip container bridges, which have the same address on every machine.
    if (words[0] != here[0] && std::find(here.begin() + 1, here.end(), words[i]) != here.end()) continue;
    const std::optional<uint32_t> address = parsed(words[i]);
    for (const Interface& one : interfaces())
      if (address && (*address & one.mask) == (one.address & one.mask)) return words[i];
  }
  return words.size() > 1 ? words[1] : words.at(0);
}

void find_rank_zero(const Variables& variables, Environment& environment) {
  std::optional<std::string> own;
  if (environment.rank == 0) own = own_place(environment.master_port ? environment.master_port : port_of(listen_on(0)));
  const std::string place = exchanged(variables, own);
  environment.master_addr = address_in(place);
  environment.master_port = port_in(place);
}

uint16_t port_in(const std::string& place) {
  return static_cast<uint16_t>(number("the port of rank 0", place.substr(place.rfind(':') + 1), 65535, kExport));
}

}  // namespace gannet::control
