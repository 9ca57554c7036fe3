// The English texts, by panel.
import account from "./account.js";
import chat from "./chat.js";
import jobs from "./jobs.js";
import listen from "./listen.js";
import operator from "./operator.js";
import shell from "./shell.js";
import speak from "./speak.js";
import talk from "./talk.js";
import voices from "./voices.js";

export default { ...shell, ...speak, ...listen, ...talk, ...chat, ...jobs, ...voices, ...account, ...operator };
