// What the double does wrong, on whose rank and when: NCCL_DOUBLE="fault=async_error;rank=1;at=5;delay_us=2000".
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>

namespace nccl_double {

class Fault {
 public:
  static Fault& get() {
    static Fault fault;
    return fault;
  }
  uint64_t delay_us = 0;  // each launch first sleeps a pseudo-random time up to this
  // Whether this process has the fault `name`; for one of launches, only the launch number `at` of the process.
  bool is(const std::string& name) const { return name == name_ && is_here_; }
  bool is_now(const std::string& name, uint64_t launch) const { return is(name) && launch == at_; }
  uint64_t next_launch() { return ++launches_; }

 private:
  Fault() {
    const char* given = std::getenv("NCCL_DOUBLE");
    std::map<std::string, std::string> members;
    std::istringstream text(given ? given : "");
    for (std::string member; std::getline(text, member, ';');)
      if (const size_t equals = member.find('='); equals != std::string::npos)
        members[member.substr(0, equals)] = member.substr(equals + 1);
    const char* rank = std::getenv("RANK");
    name_ = members["fault"];
    is_here_ = members.count("rank") == 0 || (rank && members["rank"] == rank);
    at_ = members.count("at") ? std::stoull(members["at"]) : 1;
    delay_us = members.count("delay_us") ? std::stoull(members["delay_us"]) : 0;
  }
  std::string name_;
  bool is_here_ = false;
  uint64_t at_ = 1;
  std::atomic<uint64_t> launches_{0};
};

}  // namespace nccl_double
