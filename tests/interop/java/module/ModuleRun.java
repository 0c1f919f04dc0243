import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.junit.Test;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.Request;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * Runs the tests of one class, CLASS or CLASS#METHOD, and prints a line for each.
 *
 * <p>A line is {@code @@ OUTCOME METHOD}, tabs between, with OUTCOME of passed, failed, ignored; the
 * trace of a failure goes to standard error. The exit code is 0 when no test failed.
 */
public final class ModuleRun {
    private ModuleRun() {}

    public static void main(String[] words) throws Exception {
        String[] parts = words[0].split("#");
        Class<?> suite = Class.forName(parts[0]);
        // Some are there for others to extend. Their clients' threads would go on for ever.
        if (Arrays.stream(suite.getMethods()).noneMatch(m -> m.isAnnotationPresent(Test.class))) {
            System.exit(0);
        }
        List<String> failed = new ArrayList<>();
        JUnitCore core = new JUnitCore();
        core.addListener(new RunListener() {
            @Override
            public void testFailure(Failure failure) {
                failed.add(failure.getDescription().getDisplayName());
                System.err.println(failure.getTrace());
                // A class that cannot be set up has no test that finishes.
                if (failure.getDescription().getMethodName() == null) {
                    tell("failed", failure.getDescription());
                }
            }

            @Override
            public void testFinished(Description test) {
                tell(failed.contains(test.getDisplayName()) ? "failed" : "passed", test);
            }

            @Override
            public void testIgnored(Description test) {
                tell("ignored", test);
            }
        });
        Request request =
            parts.length > 1 ? Request.method(suite, parts[1]) : Request.aClass(suite);
        System.exit(core.run(request).wasSuccessful() ? 0 : 1);
    }

    private static void tell(String outcome, Description test) {
        System.out.println("@@\t" + outcome + "\t" + test.getMethodName());
        System.out.flush();
    }
}
