// Runs stock command-line tools one after another in a single JVM: a start costs two seconds, a warm run far less.
//
// A request is one line on standard input: the main class, the standard input and each argument, each as "b" + base64,
// separated by blanks. The answer is one line: exit code, standard output and standard error, encoded likewise.
// Tools see their own System.in/out/err; exits go through Kafka's Exit class, which throws here instead. The caller
// kills this process when a tool hangs, and starts verifiable-* and other daemons in processes of their own.

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.ArrayDeque;
import java.util.Base64;
import java.util.Deque;
import org.apache.kafka.common.utils.Exit;

public final class ToolServer {
    static final class Exited extends Error {
        final int code;

        Exited(int code) {
            super("exit " + code, null, false, false);
            this.code = code;
        }
    }

    /** One object for the whole life of the JVM, since loggers and Scala's Console keep the stream they saw first. */
    static final class Capture extends OutputStream {
        private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();

        @Override public synchronized void write(int b) {
            bytes.write(b);
        }

        @Override public synchronized void write(byte[] b, int offset, int length) {
            bytes.write(b, offset, length);
        }

        synchronized byte[] take() {
            byte[] taken = bytes.toByteArray();
            bytes.reset();
            return taken;
        }
    }

    private static final Deque<Runnable> hooks = new ArrayDeque<>();
    private static volatile Integer firstExit;

    public static void main(String[] none) throws Exception {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream answers = System.out;
        Capture out = new Capture();
        Capture err = new Capture();
        System.setOut(unclosable(out));
        System.setErr(unclosable(err));
        Exit.Procedure trap = (code, message) -> {
            if (firstExit == null) firstExit = code;  // a tool may catch Exited and exit once more
            throw new Exited(code);
        };
        Exit.setExitProcedure(trap);
        Exit.setHaltProcedure(trap);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] words = line.split(" ");
            String[] arguments = Arrays.stream(words).skip(2).map(w -> new String(decode(w), StandardCharsets.UTF_8)).toArray(String[]::new);
            int code = run(new String(decode(words[0]), StandardCharsets.UTF_8), new ByteArrayInputStream(decode(words[1])), arguments);
            System.out.flush();
            System.err.flush();
            answers.println(code + " " + encode(out.take()) + " " + encode(err.take()));
            answers.flush();
        }
    }

    /** metadata-shell closes its output when it is done, and the next tool wants it too. */
    private static PrintStream unclosable(OutputStream to) {
        return new PrintStream(to, true) {
            @Override public void close() {
                flush();
            }
        };
    }

    private static int run(String mainClass, InputStream input, String[] arguments) throws Exception {
        firstExit = null;
        hooks.clear();
        System.setIn(input);
        int code = 0;
        try {
            Class<?> tool = Class.forName(mainClass);
            resetCounters(tool);
            tool.getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException e) {
            if (!(e.getCause() instanceof Exited)) {
                e.getCause().printStackTrace();
                code = 1;
            }
        }
        for (Runnable hook : hooks) {
            try {
                hook.run();
            } catch (Exited ignored) {
                // the process is ending already
            }
        }
        return firstExit == null ? code : firstExit;
    }

    /** ConsoleConsumer counts its messages in a static field: it has to start from zero as in a fresh process. */
    private static void resetCounters(Class<?> tool) throws IllegalAccessException {
        for (Field field : tool.getDeclaredFields()) {
            int modifiers = field.getModifiers();
            if (field.getType() == int.class && Modifier.isStatic(modifiers) && !Modifier.isFinal(modifiers)) {
                field.setAccessible(true);
                field.setInt(null, 0);
            }
        }
    }

    private static byte[] decode(String word) {
        return Base64.getDecoder().decode(word.substring(1));
    }

    private static String encode(byte[] bytes) {
        return "b" + Base64.getEncoder().encodeToString(bytes);
    }
}
