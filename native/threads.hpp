// Work for a few threads that end with it.
#pragma once
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace gristmill {

// work(0) .. work(count - 1), each on its own thread, the first on this one; an exception in any of them is thrown here.
template <typename Work>
void run_threads(size_t count, const Work& work) {
    std::mutex mutex;
    std::exception_ptr failure;
    auto guarded = [&](size_t index) {
        try {
            work(index);
        } catch (...) {
            std::lock_guard lock(mutex);
            failure = std::current_exception();
        }
    };
    std::vector<std::jthread> threads;
    size_t num_started = 1;
    try {
        for (; num_started < count; ++num_started) threads.emplace_back(guarded, num_started);
    } catch (const std::system_error&) {
        // No more threads to be had: this one does what is left.
    }
    guarded(0);
    for (size_t i = num_started; i < count; ++i) guarded(i);
    threads.clear();
    if (failure) std::rethrow_exception(failure);
}

}  // namespace gristmill
