// Precompiled for turn_host.cpp: headers that do not depend on gannet/abi.h.
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <boost/dll/shared_library.hpp>
#include <charconv>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>
